package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Format is an output format of a View.
type Format string

// The formats. Wide is a table with all columns. Sections is for programs that merge the
// tables of several agents: JSON of []Section; with SectionsWide, of all columns.
const (
	Table        Format = "table"
	Wide         Format = "wide"
	JSON         Format = "json"
	YAML         Format = "yaml"
	Sections     Format = "sections"
	SectionsWide Format = "sections-wide"
)

// Formats lists the formats for users.
var Formats = []Format{Table, Wide, JSON, YAML}

// ParseFormat rejects an unknown format.
func ParseFormat(s string) (Format, error) {
	if f := Format(s); slices.Contains(Formats, f) || f == Sections || f == SectionsWide {
		return f, nil
	}
	return "", fmt.Errorf("unknown output format %q: use table, wide, json or yaml", s)
}

// Output says how a View is printed.
type Output struct {
	Format Format
	// NoHeaders omits the headers of tables.
	NoHeaders bool
	// Color marks states by ANSI colors.
	Color bool
}

// Section is a part of a View as text: lines, then a table. Head is empty without a table.
type Section struct {
	Lines []string   `json:"lines,omitempty"`
	Head  []string   `json:"head,omitempty"`
	Rows  [][]string `json:"rows,omitempty"`
}

// Write prints a View in a format.
func Write(w io.Writer, v View, f Format) error { return Print(w, v, Output{Format: f}) }

// Print prints a View.
func Print(w io.Writer, v View, o Output) error {
	var out []byte
	var err error
	switch o.Format {
	case Table, Wide:
		out = text(sectionsOf(v, o.Format == Wide), o)
	case Sections, SectionsWide:
		out, err = marshal(sectionsOf(v, o.Format == SectionsWide))
	case JSON:
		out, err = marshalIndent(v, "  ")
	case YAML:
		out, err = renderYAML(v)
	default:
		_, err = ParseFormat(string(o.Format))
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// PrintSections prints the text of sections.
func PrintSections(w io.Writer, all []Section, o Output) error {
	_, err := w.Write(text(all, o))
	return err
}

// printable shows what would move a terminal's cursor, and may come from anywhere, as
// U+FFFD.
func printable(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

// marshal is json.Marshal, but does not escape "<" and ">".
func marshal(v any) ([]byte, error) { return marshalIndent(v, "") }

func marshalIndent(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// renderYAML converts JSON to YAML, preserving the names and the order of fields.
func renderYAML(v View) ([]byte, error) {
	raw, err := marshal(v)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	blockStyle(&doc)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// blockStyle switches from JSON's flow style to block style, except for empty lists.
func blockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func sectionsOf(v View, wide bool) []Section {
	t := table{wide: wide}
	v.table(&t)
	return t.sections
}

// table collects the text of a View.
type table struct {
	wide     bool // all columns
	sections []Section
}

// open returns the section to add to: the last one, or a new one after a table.
func (t *table) open() *Section {
	if n := len(t.sections); n == 0 || len(t.sections[n-1].Head) > 0 {
		t.sections = append(t.sections, Section{})
	}
	return &t.sections[len(t.sections)-1]
}

// line adds a line of text.
func (t *table) line(format string, args ...any) {
	s := t.open()
	s.Lines = append(s.Lines, fmt.Sprintf(format, args...))
}

// fact adds a line "label  text".
func (t *table) fact(label, text string) { t.line("%-12s%s", label, text) }

// head starts a table.
func (t *table) head(cells ...string) { t.open().Head = cells }

// row adds a row to the table that head started.
func (t *table) row(cells ...string) {
	last := &t.sections[len(t.sections)-1]
	last.Rows = append(last.Rows, cells)
}

// text renders sections for people.
func text(all []Section, o Output) []byte {
	var b bytes.Buffer
	for _, s := range all {
		for _, l := range s.Lines {
			fmt.Fprintf(&b, "%s\n", printable([]byte(l)))
		}
		rows := s.Rows
		if len(s.Head) > 0 && !o.NoHeaders {
			rows = slices.Insert(slices.Clone(rows), 0, s.Head)
		}
		align(&b, rows, o.Color)
	}
	return b.Bytes()
}

// align writes each row on one line, in columns. Empty cells are printed as "-", except
// for the last of a row, which is free text.
func align(b *bytes.Buffer, rows [][]string, color bool) {
	var widths []int
	for _, cells := range rows {
		for i := range cells {
			cells[i] = string(printable([]byte(strings.Join(strings.Fields(cells[i]), " "))))
			if cells[i] == "" && i < len(cells)-1 {
				cells[i] = "-"
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, cells := range rows {
		for len(cells) > 0 && cells[len(cells)-1] == "" {
			cells = cells[:len(cells)-1]
		}
		for i, c := range cells {
			pad := ""
			if i < len(cells)-1 {
				pad = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2)
			}
			b.WriteString(colored(c, color) + pad)
		}
		b.WriteByte('\n')
	}
}

// colors of cells that are states, as ANSI codes.
var colors = map[string]string{
	"up": "32", "active": "32", "established": "32", "ok": "32",
	"down": "31", "removed": "31", "rejected": "31", "no-endpoints": "31", "no-healthy-backend": "31", "conflict": "31",
	"draining": "33", "excluded": "33", "deferred": "33", "pending": "33", "panic": "33", "unknown": "33", "degraded": "33",
}

func colored(cell string, color bool) string {
	if code := colors[cell]; color && code != "" {
		return "\x1b[" + code + "m" + cell + "\x1b[0m"
	}
	return cell
}

// Age returns how long ago a time was, in its two largest units: "3m12s"; empty for the
// zero time.
func Age(then, now time.Time) string {
	if then.IsZero() {
		return ""
	}
	d := max(now.Sub(then), 0)
	switch day := 24 * time.Hour; {
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < day:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
}
