package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/yamltree"
)

// Parse reads a scenario with the files that it refers to. If files is nil, it must not
// refer to any. Errors are of type Problems. Parse accepts any text without panicking.
func Parse(file string, text []byte, files Files) (*Scenario, error) {
	return (&reader{fieldReader: fieldReader{file: file}, files: files}).parse(text)
}

func (r *reader) parse(text []byte) (*Scenario, error) {
	file := r.file
	if strings.TrimSpace(string(text)) == "" {
		return nil, Problems{{file, 1, "", "the file is empty"}}
	}
	docs, bad := yamltree.Parse(file, text)
	switch {
	case bad != nil:
		return nil, Problems{{file, bad.Line, "", bad.Message}}
	case len(docs) != 1:
		return nil, Problems{{file, 1, "", fmt.Sprintf("want one scenario in a file, got %d", len(docs))}}
	}
	s := r.scenario(docs[0])
	if r.held != nil && len(r.problems) == 0 {
		r.adopt(s)
	}
	if len(r.problems) == 0 {
		check(r, s)
	}
	if len(r.problems) == 0 {
		return s, nil
	}
	slices.SortStableFunc(r.problems, r.sooner)
	return nil, r.problems
}

// reader reads a scenario.
type reader struct {
	fieldReader
	files Files
	// held contains the frontends of the manifests if they define the services, and is
	// nil if the scenario does.
	held []held
}

func (r *reader) ref(into *Ref) field {
	return func(n *yaml.Node, at string) { r.name(&into.Name, &into.Line)(n, at) }
}

// refs reads one name or a list of names.
func (r *reader) refs(into *[]Ref) field {
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
		r.list(n, at, one)
	}
}

// pair reads the two ends of a link.
func (r *reader) pair(into *[2]Ref, line *int) field {
	return func(n *yaml.Node, at string) {
		*line = n.Line
		if n.Kind != yaml.SequenceNode || len(n.Content) != 2 {
			r.refuse(n.Line, at, "want the two ends of a link: [a, b]")
			return
		}
		for i, end := range n.Content {
			r.ref(&into[i])(end, fmt.Sprintf("%s[%d]", at, i))
		}
	}
}

// sooner orders problems: those of the scenario first, and those of each file by line.
func (r *reader) sooner(a, b Problem) int {
	rank := func(p Problem) int {
		if p.File == r.file {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}
