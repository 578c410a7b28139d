package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Format is how a View is written.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists them in the order they are told to a user.
var Formats = []Format{Table, JSON, YAML}

// ParseFormat refuses what is no format.
func ParseFormat(s string) (Format, error) {
	if !slices.Contains(Formats, Format(s)) {
		return "", fmt.Errorf("%q is no output format: use table, json or yaml", s)
	}
	return Format(s), nil
}

// Write shows v in a format.
func Write(w io.Writer, v View, f Format) error {
	var out []byte
	var err error
	switch f {
	case Table:
		out = printable(renderTable(v))
	case JSON:
		out, err = renderJSON(v)
	case YAML:
		out, err = renderYAML(v)
	default:
		_, err = ParseFormat(string(f))
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out)
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

// marshal is json.Marshal but for "<" and ">" left as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func renderJSON(v View) ([]byte, error) {
	raw, err := marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, raw, "", "  ")
	return b.Bytes(), err
}

// renderYAML turns the JSON into YAML, which keeps the names and the order of
// the fields.
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

// blockStyle takes JSON's braces and quotes off; empty lists keep theirs.
func blockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func renderTable(v View) []byte {
	var b bytes.Buffer
	v.table(&table{out: &b})
	return b.Bytes()
}

// table gathers rows until end aligns their columns.
type table struct {
	out  io.Writer
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// line writes text that has no columns.
func (t *table) line(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// fact writes a line "label  text".
func (t *table) fact(label, text string) { t.line("%-12s%s", label, text) }

// end writes the rows gathered, each on one line. Empty cells show as "-", but for the last of
// a row, which is free text.
func (t *table) end() {
	var aligned bytes.Buffer
	tw := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, cells := range t.rows {
		for i, c := range cells {
			cells[i] = strings.Join(strings.Fields(c), " ")
			if c == "" && i < len(cells)-1 {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush() // into memory: cannot fail
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(t.out, strings.TrimRight(line, " \n"))
	}
	t.rows = nil
}

// age gives how long ago a moment was, in its two largest units: "3m12s";
// empty for a moment that never was.
func age(then, now time.Time) string {
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
