package scenario

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/lab/sim/scenario/reading"
)

// Parse reads a scenario with the files that it refers to. If files is nil, it must not
// refer to any. Errors are of type Problems. Parse accepts any text without panicking.
func Parse(file string, text []byte, files Files) (*Scenario, error) {
	return (&reader{Reader: reading.Reader{File: file}, files: files}).parse(text)
}

func (r *reader) parse(text []byte) (*Scenario, error) {
	file := r.File
	if strings.TrimSpace(string(text)) == "" {
		return nil, reading.Problems{{File: file, Line: 1, Message: "the file is empty"}}
	}
	docs, bad := yamltree.Parse(file, text)
	switch {
	case bad != nil:
		return nil, reading.Problems{{File: file, Line: bad.Line, Message: bad.Message}}
	case len(docs) != 1:
		return nil, reading.Problems{{File: file, Line: 1, Message: fmt.Sprintf("want one scenario in a file, got %d", len(docs))}}
	}
	s := r.scenario(docs[0])
	if r.held != nil && len(r.Problems) == 0 {
		r.adopt(s)
	}
	if len(r.Problems) == 0 {
		check(r, s)
	}
	if len(r.Problems) == 0 {
		return s, nil
	}
	return nil, r.Sorted()
}

// reader reads a scenario.
type reader struct {
	reading.Reader
	files Files
	// held contains the frontends of the manifests if they define the services, and is
	// nil if the scenario does.
	held []held
}

func (r *reader) ref(into *Ref) reading.Field {
	return func(n *yaml.Node, at string) { r.Name(&into.Name, &into.Line)(n, at) }
}

// refs reads one name or a list of names.
func (r *reader) refs(into *[]Ref) reading.Field {
	one := func(n *yaml.Node, at string) {
		var ref Ref
		r.ref(&ref)(n, at)
		*into = append(*into, ref)
	}
	return func(n *yaml.Node, at string) {
		if n.Kind == yaml.ScalarNode {
			one(n, at)
			return
		}
		r.List(n, at, one)
	}
}

// pair reads the two ends of a link.
func (r *reader) pair(into *[2]Ref, line *int) reading.Field {
	return func(n *yaml.Node, at string) {
		*line = n.Line
		if n.Kind != yaml.SequenceNode || len(n.Content) != 2 {
			r.Refuse(n.Line, at, "want the two ends of a link: [a, b]")
			return
		}
		for i, end := range n.Content {
			r.ref(&into[i])(end, fmt.Sprintf("%s[%d]", at, i))
		}
	}
}
