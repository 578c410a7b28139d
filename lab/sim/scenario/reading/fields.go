// Package reading reads the fields of YAML files: names, words, numbers with units. It
// collects all problems of a file, each with its line and the path of its field.
//
// What does not belong here: which fields there are, and how they have to fit together
// (scenario).
package reading

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/internal/yamltree"
)

// Problem is one error in a file.
type Problem struct {
	File string
	Line int
	// Field is the path of the rejected field: "topology.links[0].rate".
	Field   string
	Message string
}

// Error returns "slow.yaml:12: topology.links[0].rate: message".
func (p Problem) Error() string {
	s := fmt.Sprintf("%s:%d: ", p.File, p.Line)
	if p.Field != "" {
		s += p.Field + ": "
	}
	return s + p.Message
}

// Problems contains all errors of a file, in the order of its lines.
type Problems []Problem

// Error returns one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Limits for values, so that a typo is rejected instead of running for a week.
const (
	MostNodes    = 20_000
	MostSeeds    = 1000
	MostSeconds  = 86400
	LeastRate    = 1e-6 // of a load, per second
	MostRate     = 1e9
	MostBits     = 1e13 // of lines, in bit/s
	MostBytes    = 1e12 // of a reply
	MostProblems = 20
)

// Reader reads the fields of a file and collects its problems.
type Reader struct {
	File     string
	Problems Problems
}

func (r *Reader) Refuse(line int, field, format string, args ...any) {
	if len(r.Problems) < MostProblems {
		r.Problems = append(r.Problems, Problem{r.File, line, field, fmt.Sprintf(format, args...)})
	}
}

// Sorted returns the problems, those of the file itself first, and those of each file by
// line.
func (r *Reader) Sorted() Problems {
	isOther := func(p Problem) int {
		if p.File == r.File {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(isOther(a), isOther(b)), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return r.Problems
}

// Field reads a value at a path.
type Field func(n *yaml.Node, at string)

// Object reads a mapping with known keys only. Required ones end in "!".
func (r *Reader) Object(n *yaml.Node, at string, fields map[string]Field) {
	if n.Kind != yaml.MappingNode {
		r.Refuse(n.Line, at, "want fields, got %s", got(n))
		return
	}
	lines := map[string]int{}
	names := slices.Sorted(maps.Keys(fields))
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], "!")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := join(at, key.Value)
		take := fields[key.Value]
		if take == nil {
			take = fields[key.Value+"!"]
		}
		switch line, twice := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.Refuse(key.Line, at, "want a field's name, got %s", got(key))
		case twice:
			r.Refuse(key.Line, path, "duplicate key, first in line %d", line)
		case take == nil || strings.HasSuffix(key.Value, "!"):
			r.Refuse(key.Line, path, "unknown key%s", cmp.Or(suggest.DidYouMean(key.Value, names), "; there are "+strings.Join(names, ", ")))
		default:
			lines[key.Value] = key.Line
			take(value, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name, must := strings.CutSuffix(name, "!"); must && lines[name] == 0 {
			r.Refuse(n.Line, join(at, name), "is missing")
		}
	}
}

// List reads each element of a list.
func (r *Reader) List(n *yaml.Node, at string, each Field) {
	if n.Kind != yaml.SequenceNode {
		r.Refuse(n.Line, at, "want a list, got %s", got(n))
		return
	}
	for i, item := range n.Content {
		each(item, fmt.Sprintf("%s[%d]", at, i))
	}
}

// Scalar returns a value's text, or false if it is not a scalar.
func (r *Reader) Scalar(n *yaml.Node, at, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.Refuse(n.Line, at, "want %s, got %s", want, got(n))
		return "", false
	}
	return n.Value, true
}

// got describes a node.
func got(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		return "an alias, which is not read here"
	}
	return yamltree.Got(n)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (r *Reader) Text(into *string) Field {
	return func(n *yaml.Node, at string) { *into, _ = r.Scalar(n, at, "text") }
}

// Name reads a member's or group's name.
func (r *Reader) Name(into *string, line *int) Field {
	return func(n *yaml.Node, at string) {
		*line = n.Line
		text, ok := r.Scalar(n, at, "a name")
		if ok && !valid(text) {
			r.Refuse(n.Line, at, "%q is not a valid name: want lower-case letters, digits and dashes, starting with a letter", text)
		}
		*into = text
	}
}

func valid(name string) bool {
	for i, c := range name {
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= 60
}

// Word reads one of a set of words.
func Word[T ~string](r *Reader, into *T, words []T) Field {
	return func(n *yaml.Node, at string) {
		text, ok := r.Scalar(n, at, "a word")
		if ok && !slices.Contains(words, T(text)) {
			r.Refuse(n.Line, at, "%q is not one of %s", text, All(words))
		}
		*into = T(text)
	}
}

func All[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

// Whole reads an integer between two bounds.
func (r *Reader) Whole(into *int, low, high int) Field {
	return func(n *yaml.Node, at string) {
		text, ok := r.Scalar(n, at, "a whole number")
		if !ok {
			return
		}
		i, err := strconv.Atoi(strings.ReplaceAll(text, "_", ""))
		if err != nil {
			r.Refuse(n.Line, at, "want a whole number, got %s", got(n))
		} else if i < low || i > high {
			r.Refuse(n.Line, at, "%d is not between %d and %d", i, low, high)
		}
		*into = i
	}
}

// Unit is a unit that may follow a number.
type Unit struct {
	name string
	is   float64
}

var (
	Plain   []Unit
	Seconds = []Unit{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}
	Bits    = []Unit{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}}
	Bytes   = []Unit{{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}
	Share   = []Unit{{"%", 0.01}}
)

// Quantity reads a number with one of the units, between two bounds.
func (r *Reader) Quantity(into *float64, units []Unit, low, high float64) Field {
	return func(n *yaml.Node, at string) {
		text, ok := r.Scalar(n, at, "a number")
		if !ok {
			return
		}
		x, ok := Quantity(text, units)
		switch {
		case !ok && len(units) > 0:
			r.Refuse(n.Line, at, "want a number with a unit, as in %s; got %s", example(units), got(n))
		case !ok:
			r.Refuse(n.Line, at, "want a number, got %s", got(n))
		case x < 0:
			r.Refuse(n.Line, at, "%s is below 0", text)
		case x < low || x > high:
			r.Refuse(n.Line, at, "%s is not between %s and %s", text, Show(low, units), Show(high, units))
		}
		*into = x
	}
}

// Quantity parses a number with a unit. Zero needs no unit.
func Quantity(text string, units []Unit) (float64, bool) {
	number, scale := strings.ReplaceAll(text, "_", ""), 1.0
	if len(units) > 0 {
		end := strings.LastIndexAny(number, "0123456789.") + 1
		i := slices.IndexFunc(units, func(u Unit) bool { return u.name == number[end:] })
		switch {
		case i >= 0:
			number, scale = number[:end], units[i].is
		case strings.Trim(number, "0.-") != "":
			return 0, false
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	return x * scale, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}

func example(units []Unit) string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = "1" + u.name
	}
	return strings.Join(names, ", ")
}

// Show formats a bound with the largest unit in which it is 1 or more.
func Show(x float64, units []Unit) string {
	name, scale := "", 1.0
	for i, u := range units {
		if i == 0 || x >= u.is || x == 0 && u.is <= 1 {
			name, scale = u.name, u.is
		}
	}
	return strconv.FormatFloat(x/scale, 'g', 6, 64) + name
}
