package scenario

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
	mostNodes    = 20_000
	mostSeeds    = 1000
	mostSeconds  = 86400
	leastRate    = 1e-6 // of a load, per second
	mostRate     = 1e9
	mostBits     = 1e13 // of lines, in bit/s
	mostBytes    = 1e12 // of a reply
	mostProblems = 20
)

// fieldReader reads the fields of a file and collects its problems.
type fieldReader struct {
	file     string
	problems Problems
}

func (r *fieldReader) refuse(line int, field, format string, args ...any) {
	if len(r.problems) < mostProblems {
		r.problems = append(r.problems, Problem{r.file, line, field, fmt.Sprintf(format, args...)})
	}
}

// field reads a value at a path.
type field func(n *yaml.Node, at string)

// object reads a mapping with known keys only. Required ones end in "!".
func (r *fieldReader) object(n *yaml.Node, at string, fields map[string]field) {
	if n.Kind != yaml.MappingNode {
		r.refuse(n.Line, at, "want fields, got %s", got(n))
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
			r.refuse(key.Line, at, "want a field's name, got %s", got(key))
		case twice:
			r.refuse(key.Line, path, "duplicate key, first in line %d", line)
		case take == nil || strings.HasSuffix(key.Value, "!"):
			r.refuse(key.Line, path, "unknown key%s", cmp.Or(suggest.DidYouMean(key.Value, names), "; there are "+strings.Join(names, ", ")))
		default:
			lines[key.Value] = key.Line
			take(value, path)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name, must := strings.CutSuffix(name, "!"); must && lines[name] == 0 {
			r.refuse(n.Line, join(at, name), "is missing")
		}
	}
}

// list reads each element of a list.
func (r *fieldReader) list(n *yaml.Node, at string, each field) {
	if n.Kind != yaml.SequenceNode {
		r.refuse(n.Line, at, "want a list, got %s", got(n))
		return
	}
	for i, item := range n.Content {
		each(item, fmt.Sprintf("%s[%d]", at, i))
	}
}

// scalar returns a value's text, or false if it is not a scalar.
func (r *fieldReader) scalar(n *yaml.Node, at, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.refuse(n.Line, at, "want %s, got %s", want, got(n))
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

func (r *fieldReader) text(into *string) field {
	return func(n *yaml.Node, at string) { *into, _ = r.scalar(n, at, "text") }
}

// name reads a member's or group's name.
func (r *fieldReader) name(into *string, line *int) field {
	return func(n *yaml.Node, at string) {
		*line = n.Line
		text, ok := r.scalar(n, at, "a name")
		if ok && !valid(text) {
			r.refuse(n.Line, at, "%q is not a valid name: want lower-case letters, digits and dashes, starting with a letter", text)
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

// word reads one of a set of words.
func word[T ~string](r *fieldReader, into *T, words []T) field {
	return func(n *yaml.Node, at string) {
		text, ok := r.scalar(n, at, "a word")
		if ok && !slices.Contains(words, T(text)) {
			r.refuse(n.Line, at, "%q is not one of %s", text, all(words))
		}
		*into = T(text)
	}
}

func all[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

// whole reads an integer between two bounds.
func (r *fieldReader) whole(into *int, low, high int) field {
	return func(n *yaml.Node, at string) {
		text, ok := r.scalar(n, at, "a whole number")
		if !ok {
			return
		}
		i, err := strconv.Atoi(strings.ReplaceAll(text, "_", ""))
		if err != nil {
			r.refuse(n.Line, at, "want a whole number, got %s", got(n))
		} else if i < low || i > high {
			r.refuse(n.Line, at, "%d is not between %d and %d", i, low, high)
		}
		*into = i
	}
}

// unit is a unit that may follow a number.
type unit struct {
	name string
	is   float64
}

var (
	plain   []unit
	seconds = []unit{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}
	bits    = []unit{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}}
	bytes   = []unit{{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}
	share   = []unit{{"%", 0.01}}
)

// quantity reads a number with one of the units, between two bounds.
func (r *fieldReader) quantity(into *float64, units []unit, low, high float64) field {
	return func(n *yaml.Node, at string) {
		text, ok := r.scalar(n, at, "a number")
		if !ok {
			return
		}
		x, ok := parse(text, units)
		switch {
		case !ok && len(units) > 0:
			r.refuse(n.Line, at, "want a number with a unit, as in %s; got %s", example(units), got(n))
		case !ok:
			r.refuse(n.Line, at, "want a number, got %s", got(n))
		case x < 0:
			r.refuse(n.Line, at, "%s is below 0", text)
		case x < low || x > high:
			r.refuse(n.Line, at, "%s is not between %s and %s", text, show(low, units), show(high, units))
		}
		*into = x
	}
}

// parse parses a number with a unit. Zero needs no unit.
func parse(text string, units []unit) (float64, bool) {
	number, scale := strings.ReplaceAll(text, "_", ""), 1.0
	if len(units) > 0 {
		end := strings.LastIndexAny(number, "0123456789.") + 1
		i := slices.IndexFunc(units, func(u unit) bool { return u.name == number[end:] })
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

func example(units []unit) string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = "1" + u.name
	}
	return strings.Join(names, ", ")
}

// show formats a bound with the largest unit in which it is 1 or more.
func show(x float64, units []unit) string {
	name, scale := "", 1.0
	for i, u := range units {
		if i == 0 || x >= u.is || x == 0 && u.is <= 1 {
			name, scale = u.name, u.is
		}
	}
	return strconv.FormatFloat(x/scale, 'g', 6, 64) + name
}
