package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/internal/yamltree"
)

// located is a fault with its line in the file.
type located struct {
	field, message string
	line           int
}

// decoder converts a node tree to JSON for one of the API's types. It reports what strict
// decoding would reject, but with the line: unknown and duplicate fields, and values of the
// wrong type.
type decoder struct {
	// budget is the remaining budget for the expansion of aliases.
	budget int
	depth  int
	faults []located
	out    bytes.Buffer
}

// newDecoder creates a decoder for the objects of one text.
func newDecoder(text []byte) *decoder { return &decoder{budget: 10*len(text) + 1000} }

// decode decodes an object strictly into one of the API's types.
func (d *decoder) decode(n *yaml.Node, into any) []located {
	d.out.Reset()
	d.faults = nil
	d.value(n, reflect.TypeOf(into).Elem(), "")
	if len(d.faults) > 0 {
		return d.faults
	}
	strict, err := kjson.UnmarshalStrict(d.out.Bytes(), into)
	if err != nil {
		strict = append(strict, err)
	}
	for _, err := range strict {
		d.refuse(n, "", "%s", err)
	}
	return d.faults
}

func (d *decoder) refuse(n *yaml.Node, path, format string, args ...any) {
	d.faults = append(d.faults, located{path, fmt.Sprintf(format, args...), n.Line})
}

// spend charges a node to the budget, so that nested aliases are bounded, and resolves an
// alias.
func (d *decoder) spend(n *yaml.Node, path string) (*yaml.Node, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.budget < 0 {
		return n, false // already reported
	}
	if d.budget -= 1 + len(n.Value); d.budget < 0 || d.depth > yamltree.MaxDepth {
		d.budget = -1
		d.refuse(n, path, "the aliases of this text unfold without measure, or it nests deeper than %d", yamltree.MaxDepth)
		return n, false
	}
	return n, true
}

// value writes n as JSON for type t.
func (d *decoder) value(n *yaml.Node, t reflect.Type, path string) {
	n, ok := d.spend(n, path)
	if !ok {
		return
	}
	d.depth++
	defer func() { d.depth-- }()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		d.out.WriteString("null")
	case reflect.PointerTo(t).Implements(unmarshaler):
		d.custom(n, t, path)
	case t.Kind() == reflect.Struct:
		d.object(n, t, path)
	case t.Kind() == reflect.Map:
		d.entries(n, t.Elem(), path)
	case t.Kind() == reflect.Slice:
		d.list(n, t.Elem(), path)
	case t.Kind() == reflect.Interface:
		d.anything(n, path)
	default:
		d.scalar(n, t, path)
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// custom writes a value of a type with its own decoder: times, int-or-string, managed
// fields.
func (d *decoder) custom(n *yaml.Node, t reflect.Type, path string) {
	start := d.out.Len()
	d.anything(n, path)
	if len(d.faults) > 0 {
		return
	}
	err := json.Unmarshal(d.out.Bytes()[start:], reflect.New(t).Interface())
	switch {
	case err == nil:
	case t == reflect.TypeFor[metav1.Time](), t == reflect.TypeFor[metav1.MicroTime]():
		d.refuse(n, path, "want a time like \"2026-01-02T15:04:05Z\", got %s", yamltree.Got(n))
	default:
		d.refuse(n, path, "is not a %s: %s", t.Name(), err)
	}
}

func (d *decoder) object(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		d.refuse(n, path, "want fields, got %s", yamltree.Got(n))
		return
	}
	fields := fieldsOf(t)
	d.out.WriteByte('{')
	field := func(name string) string { return join(path, name) }
	d.pairs(n, path, field, func(key, value *yaml.Node) {
		at := field(key.Value)
		ft, ok := fields.types[key.Value]
		if !ok {
			d.refuse(key, at, "unknown field%s", fields.suggest(key.Value))
			return
		}
		d.key(key.Value)
		d.value(value, ft, at)
	})
	d.out.WriteByte('}')
}

func (d *decoder) entries(n *yaml.Node, elem reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		d.refuse(n, path, "want key: value, got %s", yamltree.Got(n))
		return
	}
	d.out.WriteByte('{')
	entry := func(name string) string { return path + "[" + name + "]" }
	d.pairs(n, path, entry, func(key, value *yaml.Node) {
		d.key(key.Value)
		d.value(value, elem, entry(key.Value))
	})
	d.out.WriteByte('}')
}

// pairs calls each for the pairs of a mapping and of what is merged into it ("<<"); the
// mapping's own pairs take precedence. Duplicate keys are rejected; at returns the path of
// a key.
func (d *decoder) pairs(n *yaml.Node, path string, at func(string) string, each func(key, value *yaml.Node)) {
	seen := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch line, twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.refuse(key, path, "want a field's name, got %s", yamltree.Got(key))
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case twice:
			d.refuse(key, at(key.Value), "is given twice, first in line %d", line)
		default:
			seen[key.Value] = key.Line
			each(key, value)
		}
	}
	for _, m := range merged {
		d.merge(m, path, at, seen, each)
	}
}

// merge calls each for the pairs of a merged mapping, or of a list of them, whose keys are
// not yet set.
func (d *decoder) merge(
	m *yaml.Node, path string, at func(string) string, seen map[string]int, each func(key, value *yaml.Node),
) {
	d.depth++
	defer func() { d.depth-- }()
	m, ok := d.spend(m, path)
	if !ok {
		return
	}
	if m.Kind == yaml.SequenceNode {
		for _, one := range m.Content {
			d.merge(one, path, at, seen, each)
		}
		return
	}
	if m.Kind != yaml.MappingNode {
		d.refuse(m, path, "want fields to merge, got %s", yamltree.Got(m))
		return
	}
	d.budget -= len(m.Content) // charge unused pairs too
	d.pairs(m, path, at, func(key, value *yaml.Node) {
		if _, already := seen[key.Value]; !already {
			seen[key.Value] = key.Line
			each(key, value)
		}
	})
}

func (d *decoder) list(n *yaml.Node, elem reflect.Type, path string) {
	if n.Kind != yaml.SequenceNode {
		d.refuse(n, path, "want a list, got %s", yamltree.Got(n))
		return
	}
	d.out.WriteByte('[')
	for i, item := range n.Content {
		d.comma()
		d.value(item, elem, fmt.Sprintf("%s[%d]", path, i))
	}
	d.out.WriteByte(']')
}

// anything writes a value of any type.
func (d *decoder) anything(n *yaml.Node, path string) {
	switch {
	case n.Kind == yaml.MappingNode:
		d.entries(n, reflect.TypeFor[any](), path)
	case n.Kind == yaml.SequenceNode:
		d.list(n, reflect.TypeFor[any](), path)
	case n.ShortTag() == "!!bool":
		d.scalar(n, reflect.TypeFor[bool](), path)
	case n.ShortTag() == "!!int":
		d.scalar(n, reflect.TypeFor[int64](), path)
	default:
		d.text(n.Value)
	}
}

// scalar writes text, a boolean or an integer; the API types that are read here have no
// others.
func (d *decoder) scalar(n *yaml.Node, t reflect.Type, path string) {
	tag := n.ShortTag()
	word, isWord := yaml11[strings.ToLower(n.Value)]
	isWord = isWord && n.Style == 0 && tag == "!!str"
	switch {
	case n.Kind == yaml.MappingNode && n.Style == yaml.FlowStyle && len(n.Content) == 2 && n.Content[0].Kind == yaml.MappingNode:
		d.refuse(n, path, "want %s, got {{ ... }}, as of a template that was not rendered", kindName(t))
	case n.Kind != yaml.ScalarNode:
		d.refuse(n, path, "want %s, got %s", kindName(t), yamltree.Got(n))
	case t.Kind() == reflect.String && isWord:
		d.refuse(n, path, "is a boolean to Kubernetes; write %q in quotes", n.Value)
	case t.Kind() == reflect.String && (tag == "!!str" || tag == "!!timestamp"):
		d.text(n.Value)
	case t.Kind() == reflect.String && (tag == "!!int" || tag == "!!float" || tag == "!!bool"):
		d.refuse(n, path, "want text, got %s; write %q in quotes", yamltree.Got(n), n.Value)
	case t.Kind() == reflect.Bool && tag == "!!bool":
		fmt.Fprint(&d.out, strings.ToLower(n.Value))
	case t.Kind() == reflect.Bool && isWord:
		fmt.Fprint(&d.out, word)
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 && (tag == "!!int" || wholeNumber.MatchString(n.Value)):
		d.integer(n, t, path)
	default:
		d.refuse(n, path, "want %s, got %s", kindName(t), yamltree.Got(n))
	}
}

// yaml11 are the additional booleans of YAML 1.1, which Kubernetes uses. They are decoded
// the same way, so that a file has the same meaning to both.
var yaml11 = map[string]bool{"yes": true, "no": false, "on": true, "off": false, "y": true, "n": false}

// wholeNumber matches integers that may be too large for YAML to classify as such.
var wholeNumber = regexp.MustCompile(`^[-+]?[0-9]+$`)

func (d *decoder) integer(n *yaml.Node, t reflect.Type, path string) {
	i, ok := new(big.Int).SetString(n.Value, 0)
	switch digits := strings.TrimLeft(n.Value, "+-"); {
	case !ok || n.ShortTag() == "!!str":
		d.refuse(n, path, "want a whole number, got %s", yamltree.Got(n))
		return
	case len(digits) > 1 && digits[0] == '0' && wholeNumber.MatchString(digits):
		d.refuse(n, path, "%s is octal, and means %s; write %s or %s", n.Value, i, i, strings.TrimLeft(digits, "0"))
		return
	}
	limit := new(big.Int).Lsh(big.NewInt(1), uint(t.Bits()-1))
	if i.Cmp(limit) >= 0 || i.Cmp(limit.Neg(limit)) < 0 {
		d.refuse(n, path, "%s is out of range", n.Value)
		return
	}
	d.out.WriteString(i.String())
}

func (d *decoder) key(name string) {
	d.comma()
	d.text(name)
	d.out.WriteByte(':')
}

func (d *decoder) comma() {
	if last := d.out.Bytes()[d.out.Len()-1]; last != '{' && last != '[' {
		d.out.WriteByte(',')
	}
}

func (d *decoder) text(s string) {
	b, _ := json.Marshal(s) // cannot fail for a string
	d.out.Write(b)
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	}
	return "a whole number"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fieldSet has the fields of an API struct by JSON name.
type fieldSet struct {
	types map[string]reflect.Type
	names []string // sorted
}

var fieldSets sync.Map // from reflect.Type to *fieldSet

func fieldsOf(t reflect.Type) *fieldSet {
	if known, ok := fieldSets.Load(t); ok {
		return known.(*fieldSet)
	}
	fs := &fieldSet{types: map[string]reflect.Type{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported():
		case name == "" && f.Anonymous:
			for inner, it := range fieldsOf(f.Type).types {
				fs.types[inner] = it
			}
		case name == "":
			fs.types[f.Name] = f.Type
		default:
			fs.types[name] = f.Type
		}
	}
	for name := range fs.types {
		fs.names = append(fs.names, name)
	}
	slices.Sort(fs.names)
	fieldSets.Store(t, fs)
	return fs
}

// suggest names a field that may have been meant, or lists the fields.
func (fs *fieldSet) suggest(name string) string {
	if s := suggest.DidYouMean(name, fs.names); s != "" {
		return s
	}
	if len(fs.names) <= 10 {
		return "; there are " + strings.Join(fs.names, ", ")
	}
	return ""
}
