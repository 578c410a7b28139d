// Package file reads networks and peers from YAML or JSON files and reports errors with
// line numbers. It is pure.
package file

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/vdn"
)

// Item is one object of a file.
type Item struct {
	// Network or Peer is set.
	Network *vdn.Network
	Peer    *vdn.Peer
	at      place
}

// Object names it in errors.
func (i Item) Object() string {
	if i.Network != nil {
		return i.Network.Object()
	}
	return i.Peer.Object()
}

// Where adds file and line to an error about it.
func (i Item) Where(err error) error { return i.at.where(err) }

// place is the position of an object.
type place struct {
	file  string
	line  int
	lines map[string]int // of its fields, by path
}

// where adds file and line to each problem of an error.
func (p place) where(err error) error {
	var all vdn.Problems
	if !errors.As(err, &all) {
		return fmt.Errorf("%s:%d: %w", p.file, p.line, err)
	}
	var errs []error
	for _, one := range all {
		errs = append(errs, fmt.Errorf("%s:%d: %w", p.file, p.lineOf(one.Field), one))
	}
	return errors.Join(errs...)
}

// lineOf returns the line of a field, or of its closest existing parent.
func (p place) lineOf(field string) int {
	for field != "" {
		if line, ok := p.lines[field]; ok {
			return line
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return p.line
}

// Read reads documents with the list fields "networks" and "peers". It reports all errors,
// one per line, and returns no items in that case.
func Read(name string, text []byte) ([]Item, error) {
	docs, bad := yamltree.Parse(name, text)
	if bad != nil {
		return nil, fmt.Errorf("%s:%d: %s", name, bad.Line, bad.Message)
	}
	r := reader{file: name}
	for _, doc := range docs {
		r.document(doc)
	}
	if len(r.items) == 0 && len(r.faults) == 0 {
		r.refuse(1, "no networks and no peers found: list them under networks: or peers:")
	}
	if err := errors.Join(r.faults...); err != nil {
		return nil, err
	}
	return r.items, nil
}

type reader struct {
	file   string
	items  []Item
	faults []error
	lines  map[string]int // of the current item
	object string
}

func (r *reader) refuse(line int, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s:%d: "+format, append([]any{r.file, line}, args...)...))
}

func (r *reader) document(doc *yaml.Node) {
	r.object = "file"
	r.fields(doc, map[string]func(*yaml.Node){
		"networks": func(n *yaml.Node) {
			r.each(n, "networks", "name", func(n *yaml.Node) {
				network := &vdn.Network{}
				r.item(n, "network", "name", network, Item{Network: network}, func() error { return network.Validate() })
			})
		},
		"peers": func(n *yaml.Node) {
			r.each(n, "peers", "domain", func(n *yaml.Node) {
				peer := &vdn.Peer{}
				r.item(n, "peer", "domain", peer, Item{Peer: peer}, func() error { return peer.Validate() })
			})
		},
	})
}

// each processes a list of objects and rejects duplicates by their name field.
func (r *reader) each(n *yaml.Node, list, by string, do func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.refuse(n.Line, "file, %s: want a list, got %s: start each item with -", list, yamltree.Got(n))
		return
	}
	first := map[string]int{}
	for _, e := range n.Content {
		name := nameOf(e, by)
		if line, twice := first[name]; twice && name != "" {
			r.refuse(e.Line, "%s %s: is already defined in line %d: remove one", strings.TrimSuffix(list, "s"), name, line)
			continue
		}
		first[name] = e.Line
		do(e)
	}
}

func nameOf(n *yaml.Node, by string) string {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == by {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// item decodes one object and validates it.
func (r *reader) item(n *yaml.Node, kind, by string, into any, item Item, valid func() error) {
	r.object, r.lines = strings.TrimSpace(kind+" "+nameOf(n, by)), map[string]int{}
	item.at = place{r.file, n.Line, r.lines}
	before := len(r.faults)
	r.value(n, reflect.ValueOf(into).Elem(), "")
	if len(r.faults) > before {
		return
	}
	if err := valid(); err != nil {
		r.faults = append(r.faults, item.Where(err))
		return
	}
	r.items = append(r.items, item)
}

// fields processes a mapping and rejects unknown and duplicate fields.
func (r *reader) fields(n *yaml.Node, known map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.refuse(n.Line, "%s: want fields, got %s: see docs/vdn.md", r.object, yamltree.Got(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		do, ok := known[key.Value]
		names := slices.Sorted(maps.Keys(known))
		switch {
		case !ok || key.Kind != yaml.ScalarNode:
			r.refuse(key.Line, "%s, %s: unknown field%s: use %s", r.object, key.Value, suggest.DidYouMean(key.Value, names), strings.Join(names, ", "))
		case seen[key.Value]:
			r.refuse(key.Line, "%s, %s: is duplicated: remove one", r.object, key.Value)
		default:
			do(value)
		}
		seen[key.Value] = true
	}
}

// value decodes a node into a value of the model.
func (r *reader) value(n *yaml.Node, into reflect.Value, path string) {
	r.lines[path] = n.Line
	_, isText := into.Addr().Interface().(encoding.TextUnmarshaler)
	_, isJSON := into.Addr().Interface().(json.Unmarshaler)
	switch {
	case n.Kind == yaml.AliasNode:
		r.refuse(n.Line, "%s, %s: aliases are not supported: write the value", r.object, path)
	case isText || isJSON:
		r.scalar(n, into, path)
	case into.Kind() == reflect.Struct:
		known := map[string]func(*yaml.Node){}
		for i := range into.NumField() {
			name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
			known[name] = func(n *yaml.Node) { r.value(n, into.Field(i), strings.TrimPrefix(path+"."+name, ".")) }
		}
		r.fields(n, known)
	case into.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			r.refuse(n.Line, "%s, %s: want a list, got %s: put it in [ ]", r.object, path, yamltree.Got(n))
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
		for i, e := range n.Content {
			r.value(e, into.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		r.scalar(n, into, path)
	}
}

// scalar decodes one word as JSON does.
func (r *reader) scalar(n *yaml.Node, into reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.refuse(n.Line, "%s, %s: want a single value, got %s", r.object, path, yamltree.Got(n))
		return
	}
	text := []byte(n.Value)
	if into.Kind() != reflect.Int { // all other types decode from a string
		text, _ = json.Marshal(n.Value) // a string always encodes
	}
	if err := json.Unmarshal(text, into.Addr().Interface()); err != nil {
		r.refuse(n.Line, "%s, %s: cannot use %s: %v", r.object, path, yamltree.Got(n), err)
	}
}
