package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/suggest"
	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/source/object"
)

// kinds are the supported kinds, and List.
var kinds = []string{object.KindService, object.KindSlice, object.KindPod, kindPeer, kindAdvertisement, kindPool, kindQuarantine, kindSecret, "List"}

// apiVersions maps each kind, including typed lists, to its supported version.
var apiVersions = func() map[string]string {
	all := map[string]string{"List": "v1"}
	for kind, version := range map[string]string{
		object.KindService: "v1", object.KindSlice: "discovery.k8s.io/v1", object.KindPod: "v1", kindSecret: "v1",
		kindPeer: ownVersion, kindAdvertisement: ownVersion, kindPool: ownVersion, kindQuarantine: ownVersion, kindNetwork: ownVersion, kindLease: ownVersion,
	} {
		all[kind], all[kind+"List"] = version, version
	}
	return all
}()

// couldBe reports whether a rejected object, whose known part of the key is k, may be o.
func couldBe(k, o object.Key) bool {
	return (k.Kind == "" || k.Kind == o.Kind) && (k.Name == "" || k.Name == o.Name && k.Namespace == o.Namespace)
}

func where(file string, line int) string { return file + ":" + strconv.Itoa(line) }

// parsed is the content of a file.
type parsed struct {
	// broken means that the text is not valid YAML or JSON, so that its content is unknown.
	broken bool
	// objects are the accepted objects, with unique keys.
	objects []*object.Object
	// refused are the rejected objects, as far as their keys are known.
	refused []object.Key
	// cut means that the last document was rejected, as happens if a text is truncated:
	// objects may be missing.
	cut      bool
	problems []problem.Problem
}

// incomplete reports whether objects in force may be missing from the text.
func (p *parsed) incomplete() bool { return p.broken || p.cut || len(p.refused) > 0 }

// parseFile parses the text of a file. It is pure and accepts any text.
func parseFile(name string, text []byte) *parsed { return parse(name, text, false) }

// parse is parseFile, also for manifests of a cluster.
func parse(name string, text []byte, cluster bool) *parsed {
	docs, bad := yamltree.Parse(name, text)
	if bad != nil {
		return &parsed{broken: true, problems: []problem.Problem{{Where: where(name, bad.Line), Message: bad.Message}}}
	}
	r := &reader{file: name, cluster: cluster, dec: newDecoder(text), at: map[object.Key]int{}}
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
	// cluster means that the objects are for a cluster.
	cluster bool
	dec     *decoder
	at      map[object.Key]int // index in objects
}

// refuse records why an object is rejected.
func (r *reader) refuse(k object.Key, faults ...located) {
	r.refused = append(r.refused, k)
	r.report(k, faults...)
}

func (r *reader) report(k object.Key, faults ...located) {
	for _, f := range faults {
		r.problems = append(r.problems, problem.Problem{
			Object: k.String(), Where: where(r.file, f.line), Field: f.field, Message: f.message,
		})
	}
}

// object reads one object, or a list. kind is the item kind of a typed list, whose items
// need not have their own.
func (r *reader) object(n *yaml.Node, kind string, depth int) {
	r.dec.faults = nil
	n, ok := r.dec.spend(n, "")
	if !ok {
		r.refuse(object.Key{}, r.dec.faults...)
		return
	}
	k := identify(n, kind)
	version := scalarAt(n, "apiVersion")
	switch want := apiVersions[k.Kind]; {
	case n.Kind == yaml.SequenceNode:
		r.refuse(k, located{"", "want an object with apiVersion and kind, got a list; write several objects as documents of their own, or as the items of a List", n.Line})
	case n.Kind != yaml.MappingNode:
		r.refuse(k, located{"", fmt.Sprintf("want an object with apiVersion and kind, got %s", yamltree.Got(n)), n.Line})
	case k.Kind == "":
		r.refuse(k, located{"kind", "is missing; want " + strings.Join(kinds, ", "), n.Line})
	case r.cluster && isForeign(k.Kind, version):
	case want == "" || !r.cluster && slices.Contains(clusterKinds, k.Kind):
		r.otherKind(n, k)
	case version != want && (kind == "" || version != ""):
		r.refuse(k, located{"apiVersion", fmt.Sprintf("%s is read as %q, got %q", k.Kind, want, version), lineOf(n, "apiVersion")})
	case strings.HasSuffix(k.Kind, "List"):
		r.list(n, k, depth)
	default:
		r.single(n, k)
	}
}

// otherKind rejects an unsupported kind. If the kind looks misspelled, the intended object
// counts as rejected.
func (r *reader) otherKind(n *yaml.Node, k object.Key) {
	meant := suggest.Nearest(k.Kind, kinds)
	if meant != "" && meant != "List" {
		r.refuse(scoped(object.Key{Kind: meant, Namespace: k.Namespace, Name: k.Name}))
	}
	r.report(k, located{"kind", "kind " + k.Kind + " is not read here" + cmp.Or(insteadOfKind[k.Kind], suggest.DidYouMean(k.Kind, kinds)), lineOf(n, "kind")})
}

// insteadOfKind says what to use instead of a kind.
var insteadOfKind = map[string]string{
	"Endpoints":      "; want EndpointSlices (discovery.k8s.io/v1)",
	"Gateway":        "; the Gateway API is for clusters (fairlead agent --kubernetes --gateway-api)",
	"VirtualNetwork": "; networks are for fairlead vdn apply",
}

// listText is the shape of v1 List and of the typed lists, with items left undecoded.
type listText struct {
	metav1.TypeMeta `json:""`
	metav1.ListMeta `json:"metadata"`
	Items           []any `json:"items"`
}

func (r *reader) list(n *yaml.Node, k object.Key, depth int) {
	k = object.Key{Kind: k.Kind}
	if depth > 0 {
		r.refuse(object.Key{})
		r.report(k, located{"kind", "a List within a List is not read", n.Line})
		return
	}
	// The items are decoded one by one with their own types; omit them here.
	items := child(n, "items")
	shell := *n
	shell.Content = slices.Clone(n.Content)
	for i := 0; i+1 < len(shell.Content); i += 2 {
		if items != nil && items.Kind == yaml.SequenceNode && shell.Content[i].Value == "items" {
			shell.Content[i+1] = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: items.Line}
		}
	}
	if faults := r.dec.decode(&shell, &listText{}); len(faults) > 0 {
		r.refuse(object.Key{})
		r.report(k, faults...)
	}
	if items == nil || items.Kind != yaml.SequenceNode {
		return
	}
	for _, item := range items.Content {
		r.object(item, strings.TrimSuffix(k.Kind, "List"), depth+1)
	}
}

// single reads an object that is not a list.
func (r *reader) single(n *yaml.Node, k object.Key) {
	var o *object.Object
	var fs []object.Fault
	at := object.Origin{File: r.file, Line: func(field string) int { return lineOf(n, field) }}
	var faults []located
	switch k.Kind {
	case object.KindService:
		var s corev1.Service
		if faults = r.dec.decode(n, &s); len(faults) == 0 {
			o, fs = r.service(&s, at)
			fs = append(checkMeta(&s.ObjectMeta, validation.IsDNS1123Label), fs...)
		}
	case object.KindSlice:
		var s discoveryv1.EndpointSlice
		if faults = r.dec.decode(n, &s); len(faults) == 0 {
			o, fs = object.ReadSlice(&s, at)
			fs = append(checkMeta(&s.ObjectMeta, validation.IsDNS1123Subdomain), fs...)
		}
	case object.KindPod:
		var p podText
		if faults = r.dec.decode(n, &p); len(faults) == 0 {
			o, fs = object.ReadPod(&p.ObjectMeta, at)
			fs = append(checkMeta(&p.ObjectMeta, validation.IsDNS1123Subdomain), fs...)
		}
	default:
		o, fs, faults = r.routing(n, k, at)
	}
	faults = append(faults, locate(n, fs)...)
	switch {
	case len(faults) == 0:
		r.accept(o)
		r.report(k, locate(n, o.Notes)...)
	case slices.ContainsFunc(faults, func(f located) bool { return strings.HasPrefix(f.field, "metadata.name") }):
		r.refuse(object.Key{Kind: k.Kind}) // its name is unreliable
		r.report(k, faults...)
	default:
		r.refuse(k, faults...)
	}
}

// podText is the shape of a v1 Pod, of which only the metadata is read.
type podText struct {
	metav1.TypeMeta   `json:""`
	metav1.ObjectMeta `json:"metadata"`
	Spec              any `json:"spec"`
	Status            any `json:"status"`
}

// accept adds an object, unless another one with the same key takes precedence.
func (r *reader) accept(o *object.Object) {
	i, double := r.at[o.Key]
	if !double {
		r.at[o.Key] = len(r.objects)
		r.objects = append(r.objects, o)
		return
	}
	if older(o, r.objects[i]) < 0 {
		r.objects[i], o = o, r.objects[i]
	}
	r.problems = append(r.problems, twice(o, r.objects[i], false))
}

// checkMeta checks an object's name and namespace.
func checkMeta(m *metav1.ObjectMeta, valid func(string) []string) (faults []object.Fault) {
	if m.Name == "" {
		return []object.Fault{{Field: "metadata.name", Message: "is missing; every object has a name"}}
	}
	for _, why := range valid(m.Name) {
		faults = append(faults, object.Fault{Field: "metadata.name", Message: fmt.Sprintf("%q is not a valid name: %s", m.Name, briefly(why))})
	}
	if m.Namespace != "" {
		for _, why := range validation.IsDNS1123Label(m.Namespace) {
			faults = append(faults, object.Fault{Field: "metadata.namespace", Message: fmt.Sprintf("%q is not a valid namespace: %s", m.Namespace, briefly(why))})
		}
	}
	return faults
}

// briefly strips examples and regular expressions from Kubernetes' messages about names.
func briefly(why string) string {
	why, _, _ = strings.Cut(why, " (e.g. ")
	return why
}

// locate finds the lines of faults.
func locate(n *yaml.Node, faults []object.Fault) (ls []located) {
	for _, f := range faults {
		ls = append(ls, located{f.Field, f.Message, lineOf(n, f.Field)})
	}
	return ls
}

// identify reads an object's key, even if the rest is invalid.
func identify(n *yaml.Node, kind string) object.Key {
	k := object.Key{Kind: cmp.Or(scalarAt(n, "kind"), kind)}
	if meta := child(n, "metadata"); meta != nil {
		k.Name = scalarAt(meta, "name")
		k.Namespace = cmp.Or(scalarAt(meta, "namespace"), metav1.NamespaceDefault)
	}
	return scoped(k)
}

// child returns the value of a field, or nil.
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

// lineOf returns the line of a field by its path, or of its closest existing parent.
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

// firstStep splits a path: "a.b", "a[0]", "a[b.c/d]".
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
