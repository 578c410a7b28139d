package metallb

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/source/importer"
)

// resources are the Fairlead resources being created.
type resources struct {
	names map[string]bool // in use, as "kind/name"
	pools []pool
	// poolNames, peerNames and aliases resolve the references of advertisements: pools to
	// their new names, peers to the BGPPeers created for them, communities to their values.
	poolNames  map[string]string
	peerNames  map[string][]string
	aliases    map[string]string
	profiles   map[string]field
	interfaces []string // for layer 2
}

func newResources() resources {
	return resources{
		names: map[string]bool{}, poolNames: map[string]string{}, peerNames: map[string][]string{}, aliases: map[string]string{},
		profiles: map[string]field{},
	}
}

// spec is the ordered content of an object's spec.
type spec struct{ node yaml.Node }

func (s *spec) set(key string, value any) {
	n := &yaml.Node{}
	if f, ok := value.(field); ok {
		n = f.node
	} else if err := n.Encode(value); err != nil {
		return // plain values always encode
	}
	s.node.Kind = yaml.MappingNode
	s.node.Content = append(s.node.Content, scalar(key), n)
}

// copies copies the fields that exist, under their new names.
func (s *spec) copies(from field, names map[string]string) {
	from.each(func(key string, value field) {
		if to := names[key]; to != "" && value.node.Kind != 0 && value.node.ShortTag() != "!!null" {
			s.set(to, value)
		}
	})
}

func (s *spec) clone() *spec {
	return &spec{yaml.Node{Kind: s.node.Kind, Content: slices.Clone(s.node.Content)}}
}

// unique returns an object name that is unique within its kind.
func (r *reader) unique(kind, name string) string {
	for n, try := 1, name; ; n, try = n+1, fmt.Sprintf("%s-%d", name, n+1) {
		if !r.names[kind+"/"+try] {
			r.names[kind+"/"+try] = true
			return try
		}
	}
}

// add adds an object if an agent would accept it.
func (r *reader) add(at importer.At, what, kind, name string, s *spec) bool {
	object := yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		scalar("apiVersion"), scalar("fairlead.io/v1alpha1"), scalar("kind"), scalar(kind),
		scalar("metadata"), {Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{scalar("name"), scalar(name)}},
		scalar("spec"), &s.node,
	}}
	s.node.Kind = yaml.MappingNode
	text, err := importer.Encode(&object)
	if err != nil {
		r.lose(at, what, err.Error(), "it is left out")
		return false
	}
	m := importer.Manifest{Name: strings.ToLower(kind) + "-" + name, At: at, Objects: [][]byte{text}}
	taken, losses := m.CheckRouting()
	for _, l := range losses {
		r.lose(at, what, l.Why, kind+" "+name+" is left out: write it by hand")
	}
	if taken {
		r.Routing = append(r.Routing, m)
	}
	return taken
}

// selectors returns one spec per selector: MetalLB has lists of alternative selectors, a
// Fairlead object has one. all is the list.
func (s *spec) selectors(key string, all field) (made []*spec) {
	for _, one := range all.items() {
		c := s.clone()
		c.set(key, one)
		made = append(made, c)
	}
	if len(made) == 0 {
		return []*spec{s}
	}
	return made
}

// addEach adds an object for each spec and returns their names.
func (r *reader) addEach(at importer.At, what, kind, name string, all []*spec) (names []string) {
	for _, s := range all {
		if n := r.unique(kind, name); r.add(at, what, kind, n, s) {
			names = append(names, n)
		}
	}
	return names
}

// selects reports whether labels match a selector with only matchLabels; known is false for
// other selectors.
func selects(selector field, labels map[string]string) (yes, known bool) {
	yes, known = true, true
	selector.each(func(key string, value field) {
		known = known && key == "matchLabels"
		value.each(func(label string, want field) { yes = yes && labels[label] == want.text() })
	})
	return yes, known
}
