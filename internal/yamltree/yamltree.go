// Package yamltree parses YAML and JSON into trees whose nodes have line numbers, and
// locates syntax errors. It has no side effects and accepts any text.
package yamltree

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/shorten"
)

// MaxDepth limits the nesting depth of a text; Kubernetes objects stay far below it.
const MaxDepth = 200

// Error is the place where a text is not valid YAML or JSON.
type Error struct {
	Line    int
	Message string
}

// Parse returns the documents of a file as trees. A file whose name ends in .json is parsed
// as JSON. Empty documents are omitted.
func Parse(name string, text []byte) ([]*yaml.Node, *Error) {
	if len(bytes.TrimSpace(text)) == 0 {
		// The result of truncating a file before writing it when the disk is full.
		return nil, &Error{1, "the file is empty" + halfWritten + "; to take away what it held, remove it"}
	}
	if bad := notUTF8(text); bad != nil {
		return nil, bad
	}
	if strings.EqualFold(filepath.Ext(name), ".json") {
		return parseJSON(bytes.TrimPrefix(text, []byte("\ufeff")))
	}
	return parseYAML(text)
}

func parseYAML(text []byte) (docs []*yaml.Node, bad *Error) {
	// A bug in the library must affect one file, not the process.
	defer func() {
		if r := recover(); r != nil {
			docs, bad = nil, &Error{1, fmt.Sprintf("not YAML that can be read: %v", r)}
		}
	}()
	dec, lines := yaml.NewDecoder(bytes.NewReader(text)), Lines(text)
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, yamlError(text, err)
		}
		if line := settle(&doc, lines, -1); line > 0 { // the document itself is not a level
			return nil, &Error{line, fmt.Sprintf("nested deeper than %d", MaxDepth)}
		}
		if root := doc.Content[0]; root.ShortTag() != "!!null" {
			docs = append(docs, root)
		}
	}
}

// settle returns the line of the first list or mapping nested deeper than MaxDepth, or 0.
// (The library's own limit is 10,000.) It also moves nodes that the library places after
// the last line, such as an empty one, onto the last line.
func settle(n *yaml.Node, lines, depth int) (line int) {
	n.Line = min(n.Line, lines)
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		return 0
	}
	if depth >= MaxDepth {
		return n.Line
	}
	for _, c := range n.Content {
		if line = settle(c, lines, depth+1); line > 0 {
			return line
		}
	}
	return 0
}

// Cost returns the number of nodes and bytes of a tree after alias expansion. If that
// exceeds most, or aliases nest deeper than MaxDepth (for example recursively), the result
// is only known to be greater than most.
func Cost(n *yaml.Node, most int) int { return cost(n, most, 0) }

func cost(n *yaml.Node, most, depth int) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if depth > MaxDepth {
		return most + 1
	}
	total := 1 + len(n.Value)
	for i := 0; i < len(n.Content) && total <= most; i++ {
		total += cost(n.Content[i], most-total, depth+1)
	}
	return total
}

var (
	yamlLine    = regexp.MustCompile(`^line (\d+): `)
	yamlAnchor  = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	countsFrom0 = regexp.MustCompile(`^did not find expected (node content|'-' indicator|key|',' or|<)`)
	// unclosed matches errors that are best reported where the text begins.
	unclosed = regexp.MustCompile(`^found unexpected (end of stream|document indicator)`)
)

// halfWritten is added if a text ends too early.
const halfWritten = " (half-written?)"

// yamlError determines the line of a library error. yaml.v3 reports where the enclosing
// element begins; its predecessor reports where the error is.
func yamlError(text []byte, err error) *Error {
	line, message := splitLine(err)
	if m := yamlAnchor.FindStringSubmatch(message); m != nil {
		before, _, _ := bytes.Cut(text, []byte("*"+m[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	} else if !unclosed.MatchString(message) {
		line = cmp.Or(problemLine(text), line)
	}
	if strings.Contains(message, "end of stream") {
		message += halfWritten
	}
	line = min(max(line, 1), Lines(text))
	return &Error{line, "not valid YAML: " + message + yamlHint(text, line, message)}
}

// problemLine returns the line at which yaml.v2 fails, or 0.
func problemLine(text []byte) int {
	dec := yamlv2.NewDecoder(bytes.NewReader(text))
	for {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err != nil {
			line, _ := splitLine(err)
			return line
		}
	}
}

// splitLine splits an error of either library into line and message. Parsers count lines
// from 0, scanners from 1; the first line is omitted.
func splitLine(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	if line > 0 && countsFrom0.MatchString(message) {
		line++
	}
	return line, message
}

// Lines returns the number of lines of a text.
func Lines(text []byte) int {
	return max(1, bytes.Count(text, []byte("\n"))+btoi(!bytes.HasSuffix(text, []byte("\n"))))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// parseJSON parses JSON, which is almost a subset of YAML, into the same trees.
func parseJSON(text []byte) ([]*yaml.Node, *Error) {
	p := &jsonParser{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1}
	p.dec.UseNumber()
	var docs []*yaml.Node
	for {
		n, err := p.value(0)
		var syntax *json.SyntaxError
		switch {
		case err == nil:
			docs = append(docs, n)
			continue
		case errors.Is(err, io.EOF) && p.depth == 0:
			return docs, nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, &Error{Lines(text), "not valid JSON: unexpected end" + halfWritten}
		case errors.As(err, &syntax):
			p.advance(syntax.Offset)
		}
		line := min(p.line, Lines(text))
		return nil, &Error{line, "not valid JSON: " + err.Error() + jsonHint(text, line, err.Error())}
	}
}

type jsonParser struct {
	text  []byte
	dec   *json.Decoder
	at    int64 // offset up to which lines are counted
	line  int
	depth int
}

// advance counts lines up to an offset.
func (p *jsonParser) advance(to int64) {
	to = min(to, int64(len(p.text)))
	if to > p.at {
		p.line += bytes.Count(p.text[p.at:to], []byte("\n"))
		p.at = to
	}
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	p.depth = depth
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	p.advance(p.dec.InputOffset())
	n := &yaml.Node{Line: p.line, Kind: yaml.ScalarNode}
	switch t := token.(type) {
	case json.Delim:
		return n, p.container(n, t, depth+1)
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// container parses the members of an object or array, including the closing delimiter.
func (p *jsonParser) container(n *yaml.Node, open json.Delim, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("nested deeper than %d", MaxDepth)
	}
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	p.depth = depth
	for p.dec.More() {
		child, err := p.value(depth)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
	p.depth = depth
	if _, err := p.dec.Token(); err != nil { // closing delimiter
		return err // depth is still > 0, so EOF is unexpected
	}
	p.advance(p.dec.InputOffset())
	p.depth = depth - 1
	return nil
}

// Got describes a node for error messages.
func Got(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	}
	value := shorten.Text(n.Value, 40)
	switch tag := n.ShortTag(); tag {
	case "!!int", "!!float":
		return "the number " + value
	case "!!bool":
		return "the boolean " + value
	case "!!str", "!!timestamp":
		return fmt.Sprintf("the text %q", value)
	case "!!null":
		return "nothing"
	default:
		return fmt.Sprintf("a value tagged %q", tag)
	}
}
