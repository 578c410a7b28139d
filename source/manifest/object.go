package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/source"
)

// The kinds that are read.
const (
	kindService = "Service"
	kindSlice   = "EndpointSlice"
)

// apiVersions says in which version each kind is read.
var apiVersions = map[string]string{
	kindService: "v1", kindSlice: "discovery.k8s.io/v1",
	"List": "v1", kindService + "List": "v1", kindSlice + "List": "discovery.k8s.io/v1",
}

var kinds = []string{kindService, kindSlice, "List"}

// key names an object. In a key of a refused object any part may be empty,
// which is to say unknown.
type key struct{ kind, namespace, name string }

// String gives "Service default/web", or as much of it as is known.
func (k key) String() string {
	if k.name == "" {
		return k.kind
	}
	return strings.TrimSpace(k.kind + " " + k.namespace + "/" + k.name)
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// couldBe says whether a refused object, of which k is known, may have been
// meant to be o.
func (k key) couldBe(o key) bool {
	return (k.kind == "" || k.kind == o.kind) && (k.name == "" || k.name == o.name && k.namespace == o.namespace)
}

// object is one object as it was accepted. It is never changed.
type object struct {
	key     key
	file    string
	line    int
	created time.Time
	// Either of these, by the key's kind.
	service *listener
	slice   *slice
}

// where gives "file:line".
func (o *object) where() string { return where(o.file, o.line) }

func where(file string, line int) string { return file + ":" + strconv.Itoa(line) }

func (o *object) problem(line int, field, format string, args ...any) source.Problem {
	return source.Problem{
		Object: o.key.String(), Where: where(o.file, line), Field: field, Message: fmt.Sprintf(format, args...),
	}
}

// parsed is what a file holds.
type parsed struct {
	// broken says that the text is no YAML or JSON, so that nothing is known
	// of what it holds.
	broken bool
	// objects are those accepted, no key twice.
	objects []*object
	// refused are those not accepted, as far as they could be named.
	refused []key
	// cut says that the last document was not accepted, as happens where a
	// text ends before its time: there may be more to come.
	cut      bool
	problems []source.Problem
}

// parseFile reads the text of a file. It is pure and takes any text.
func parseFile(name string, text []byte) *parsed {
	docs, bad := parseText(name, text)
	if bad != nil {
		return &parsed{broken: true, problems: []source.Problem{{Where: where(name, bad.line), Message: bad.message}}}
	}
	r := &reader{file: name, dec: newDecoder(text), at: map[key]int{}}
	for _, doc := range docs {
		before := len(r.refused)
		r.object(doc, "", 0)
		r.cut = len(r.refused) > before
	}
	return &r.parsed
}

// reader collects the objects of one file.
type reader struct {
	parsed
	file string
	dec  *decoder
	at   map[key]int // in objects
}

// refuse notes why an object is not accepted.
func (r *reader) refuse(k key, faults ...located) {
	r.refused = append(r.refused, k)
	r.tell(k, faults...)
}

func (r *reader) tell(k key, faults ...located) {
	for _, f := range faults {
		r.problems = append(r.problems, source.Problem{
			Object: k.String(), Where: where(r.file, f.line), Field: f.field, Message: f.message,
		})
	}
}

// object reads one object, or a list of them. kind is what a typed list says
// of its items, which need not say it themselves.
func (r *reader) object(n *yaml.Node, kind string, depth int) {
	r.dec.faults = nil
	n, ok := r.dec.spend(n, "")
	if !ok {
		r.refuse(key{}, r.dec.faults...)
		return
	}
	k := identify(n, kind)
	version := scalarAt(n, "apiVersion")
	switch want := apiVersions[k.kind]; {
	case n.Kind != yaml.MappingNode:
		r.refuse(k, located{fault{"", fmt.Sprintf("want an object with apiVersion and kind, got %s", got(n))}, n.Line})
	case k.kind == "":
		r.refuse(k, located{fault{"kind", "is missing; want " + strings.Join(kinds, ", ")}, n.Line})
	case want == "":
		r.otherKind(n, k)
	case version != want && (kind == "" || version != ""):
		r.refuse(k, located{fault{"apiVersion", fmt.Sprintf("%s is read as %q, got %q", k.kind, want, version)}, lineOf(n, "apiVersion")})
	case strings.HasSuffix(k.kind, "List"):
		r.list(n, k, depth)
	default:
		r.single(n, k)
	}
}

// otherKind refuses what is not read here. Where the kind looks misspelt, the
// object is taken for the one that was meant.
func (r *reader) otherKind(n *yaml.Node, k key) {
	meant := nearest(k.kind, kinds)
	if meant == kindService || meant == kindSlice {
		r.refuse(key{meant, k.namespace, k.name})
	}
	r.tell(k, located{fault{"kind", "kind " + k.kind + " is not read here" + didYouMean(k.kind, kinds)}, lineOf(n, "kind")})
}

// listText is the shape of v1 List and of the typed lists, their items left
// to be read one by one.
type listText struct {
	metav1.TypeMeta `json:""`
	metav1.ListMeta `json:"metadata"`
	Items           []any `json:"items"`
}

func (r *reader) list(n *yaml.Node, k key, depth int) {
	k = key{kind: k.kind}
	if depth > 0 {
		r.refuse(key{})
		r.tell(k, located{fault{"kind", "a List within a List is not read"}, n.Line})
		return
	}
	// The items are checked one by one as what they are; here they are left
	// out.
	items := child(n, "items")
	shell := *n
	shell.Content = slices.Clone(n.Content)
	for i := 0; i+1 < len(shell.Content); i += 2 {
		if items != nil && items.Kind == yaml.SequenceNode && shell.Content[i].Value == "items" {
			shell.Content[i+1] = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: items.Line}
		}
	}
	if faults := r.dec.decode(&shell, &listText{}); len(faults) > 0 {
		r.refuse(key{})
		r.tell(k, faults...)
	}
	if items == nil || items.Kind != yaml.SequenceNode {
		return
	}
	for _, item := range items.Content {
		r.object(item, strings.TrimSuffix(k.kind, "List"), depth+1)
	}
}

// single reads a Service or an EndpointSlice.
func (r *reader) single(n *yaml.Node, k key) {
	o := &object{key: k, file: r.file, line: n.Line}
	var faults []located
	switch k.kind {
	case kindService:
		var s corev1.Service
		if faults = r.dec.decode(n, &s); len(faults) == 0 {
			var fs []fault
			o.service, fs = readService(&s, func(field string) int { return lineOf(n, field) })
			faults = locate(n, append(checkMeta(&s.ObjectMeta, validation.IsDNS1123Label), fs...))
			o.created = s.CreationTimestamp.UTC()
		}
	case kindSlice:
		var s discoveryv1.EndpointSlice
		if faults = r.dec.decode(n, &s); len(faults) == 0 {
			var fs []fault
			o.slice, fs = readSlice(&s, func(field string) int { return lineOf(n, field) })
			faults = locate(n, append(checkMeta(&s.ObjectMeta, validation.IsDNS1123Subdomain), fs...))
			o.created = s.CreationTimestamp.UTC()
		}
	}
	switch {
	case len(faults) == 0:
		r.accept(o)
	case slices.ContainsFunc(faults, func(f located) bool { return strings.HasPrefix(f.field, "metadata.name") }):
		r.refuse(key{kind: k.kind}) // its name is not to be trusted
		r.tell(k, faults...)
	default:
		r.refuse(k, faults...)
	}
}

// accept adds an object, unless it is a loser against one with its key.
func (r *reader) accept(o *object) {
	i, double := r.at[o.key]
	if !double {
		r.at[o.key] = len(r.objects)
		r.objects = append(r.objects, o)
		return
	}
	if !newer(r.objects[i], o) {
		r.objects[i], o = o, r.objects[i]
	}
	r.problems = append(r.problems, twice(o, r.objects[i]))
}

// checkMeta checks an object's own name and namespace.
func checkMeta(m *metav1.ObjectMeta, valid func(string) []string) (faults []fault) {
	if m.Name == "" {
		return []fault{{"metadata.name", "is missing; every object has a name"}}
	}
	for _, why := range valid(m.Name) {
		faults = append(faults, fault{"metadata.name", fmt.Sprintf("%q is not a valid name: %s", m.Name, why)})
	}
	if m.Namespace != "" {
		for _, why := range validation.IsDNS1123Label(m.Namespace) {
			faults = append(faults, fault{"metadata.namespace", fmt.Sprintf("%q is not a valid namespace: %s", m.Namespace, why)})
		}
	}
	return faults
}

// locate finds the lines of faults.
func locate(n *yaml.Node, faults []fault) (ls []located) {
	for _, f := range faults {
		ls = append(ls, located{f, lineOf(n, f.field)})
	}
	return ls
}

// identify reads who an object says it is, whatever else is wrong with it.
func identify(n *yaml.Node, kind string) key {
	k := key{kind: cmp.Or(scalarAt(n, "kind"), kind)}
	if meta := child(n, "metadata"); meta != nil {
		k.name = scalarAt(meta, "name")
		k.namespace = cmp.Or(scalarAt(meta, "namespace"), metav1.NamespaceDefault)
	}
	return k
}

// child gives the value of a field, or nil.
func child(n *yaml.Node, name string) *yaml.Node {
	_, value := pair(n, name)
	return value
}

func pair(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			value := n.Content[i+1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			return n.Content[i], value
		}
	}
	return nil, nil
}

func scalarAt(n *yaml.Node, name string) string {
	if c := child(n, name); c != nil && c.Kind == yaml.ScalarNode && c.ShortTag() != "!!null" {
		return c.Value
	}
	return ""
}

// lineOf gives the line of a field by its path, or of the nearest thing around
// it that is there.
func lineOf(n *yaml.Node, path string) int {
	line := n.Line
	for path != "" {
		var step string
		step, path = firstStep(path)
		switch n.Kind {
		case yaml.MappingNode:
			k, v := pair(n, step)
			if v == nil {
				return line
			}
			n, line = v, k.Line
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(n.Content) {
				return line
			}
			n, line = n.Content[i], n.Content[i].Line
			if n.Kind == yaml.AliasNode {
				n = n.Alias
			}
		default:
			return line
		}
	}
	return line
}

// firstStep cuts a path as it is written here: "a.b", "a[0]", "a[b.c/d]".
func firstStep(path string) (step, rest string) {
	if strings.HasPrefix(path, "[") {
		step, rest, _ = strings.Cut(path[1:], "]")
	} else if i := strings.IndexAny(path, ".["); i >= 0 {
		step, rest = path[:i], path[i:]
	} else {
		return path, ""
	}
	return step, strings.TrimPrefix(rest, ".")
}

// newer says whether o loses against first, which stands before it: the older
// wins, and the first where either's age is not known.
func newer(first, o *object) bool {
	if first.created.IsZero() || o.created.IsZero() {
		return true
	}
	return !o.created.Before(first.created)
}

// twice is the Problem of an object whose key another has.
func twice(loser, winner *object) source.Problem {
	why := "comes first"
	if winner.created.Before(loser.created) && !winner.created.IsZero() {
		why = "is older"
	}
	return loser.problem(loser.line, "metadata.name", "is also in %s, which %s and is used; remove or rename one of the two",
		winner.where(), why)
}
