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

// Format is an output format of a View.
type Format string

// Formats of a View.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists the formats in the order shown to users.
var Formats = []Format{Table, JSON, YAML}

// ParseFormat parses the name of a format.
func ParseFormat(s string) (Format, error) {
	if !slices.Contains(Formats, Format(s)) {
		return "", fmt.Errorf("%q is no output format: use table, json or yaml", s)
	}
	return Format(s), nil
}

// Write writes v in a format.
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

// printable replaces control characters, which may come from anywhere, with U+FFFD.
func printable(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

// marshal is json.Marshal, but does not escape "<" and ">".
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

func renderTable(v View) []byte {
	var b bytes.Buffer
	v.table(&table{out: &b})
	return b.Bytes()
}

// table collects rows until end aligns their columns.
type table struct {
	out  io.Writer
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// line writes text without columns.
func (t *table) line(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// fact writes a line "label  text".
func (t *table) fact(label, text string) { t.line("%-12s%s", label, text) }

// end writes the collected rows, each on one line. Empty cells show as "-", except the
// last of a row, which is free text.
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

// age returns how long ago a time was, in its two largest units: "3m12s"; empty for the
// zero time.
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
