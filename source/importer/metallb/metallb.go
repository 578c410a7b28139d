// Package metallb converts MetalLB's configuration, its resources or its old ConfigMap,
// with Services and EndpointSlices: the Services get Fairlead's annotations, pools, peers
// and advertisements become its resources, and everything else is reported. It does not
// access a cluster.
package metallb

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/yamltree"
	"github.com/fairlead/fairlead/source/importer"
)

// File is a YAML or JSON file.
type File struct {
	Name string
	Text []byte
}

// Read converts files, which are read as one. The error is a SyntaxError.
func Read(files []File) (*importer.Result, error) {
	r := &reader{taken: map[string]bool{}, resources: newResources()}
	for _, f := range files {
		if err := r.file(f); err != nil {
			return nil, err
		}
	}
	for _, s := range r.services {
		r.service(s)
	}
	r.finishRouting()
	r.Sort()
	return &r.Result, nil
}

// reader collects the content of the files.
type reader struct {
	importer.Result
	resources
	services []*resource
	slices   []*resource
	adverts  []advert
	peers    []peer
	taken    map[string]bool // names of Services
	left     int             // remaining budget for the alias expansion of a file
}

// resource is a Kubernetes or MetalLB object.
type resource struct {
	kind, namespace, name string
	field                 // the entire object
}

func (o *resource) String() string { return o.kind + " " + o.name }

// field is a value with its position.
type field struct {
	node *yaml.Node
	file string
	// before is the number of lines before the text that the node is from.
	before int
}

func (f field) at() importer.At {
	line := 1
	if f.node != nil {
		line = f.node.Line
	}
	return importer.At{File: f.file, Line: max(line+f.before, 1)}
}

// get returns a nested field, without a node if it does not exist.
func (f field) get(path ...string) field {
	for _, name := range path {
		next := field{file: f.file, before: f.before}
		f.each(func(key string, value field) {
			if key == name {
				next = value
			}
		})
		f = next
	}
	return f
}

// each iterates over the fields of a mapping.
func (f field) each(do func(key string, value field)) {
	if f.node == nil || f.node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(f.node.Content); i += 2 {
		do(f.node.Content[i].Value, f.of(f.node.Content[i+1]))
	}
}

// items returns the items of a list.
func (f field) items() (all []field) {
	if f.node == nil || f.node.Kind != yaml.SequenceNode {
		return nil
	}
	for _, n := range f.node.Content {
		all = append(all, f.of(n))
	}
	return all
}

func (f field) of(n *yaml.Node) field {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return field{n, f.file, f.before}
}

// text returns a scalar; "" for anything else.
func (f field) text() string {
	if f.node == nil || f.node.Kind != yaml.ScalarNode || f.node.ShortTag() == "!!null" {
		return ""
	}
	return f.node.Value
}

// number returns a value as a number; 0 if it is not a number.
func (f field) number() int {
	n, err := strconv.ParseUint(f.text(), 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// texts returns the scalars of a list.
func (f field) texts() (all []string) {
	for _, i := range f.items() {
		all = append(all, i.text())
	}
	return all
}

func (r *reader) file(f File) error {
	if len(bytes.TrimSpace(f.Text)) == 0 {
		return nil
	}
	docs, bad := yamltree.Parse(f.Name, f.Text)
	if bad != nil {
		return syntax(f.Name, bad.Line, bad.Message)
	}
	r.left = 10*len(f.Text) + 1000
	for _, doc := range docs {
		if err := r.object(field{doc, f.Name, 0}, 0); err != nil {
			return err
		}
	}
	return nil
}

func syntax(file string, line int, message string) error {
	return &importer.SyntaxError{At: importer.At{File: file, Line: line}, Message: message}
}

// spend charges an object's size to the budget, so that nested aliases are bounded.
func (r *reader) spend(f field, cost int) error {
	if r.left -= cost; r.left < 0 {
		at := f.at()
		return syntax(at.File, at.Line, fmt.Sprintf("the aliases of this text unfold to more than ten times its size, or it nests deeper than %d", yamltree.MaxDepth))
	}
	return nil
}

// group is MetalLB's API group, in any version.
const group = "metallb.io/"

// object processes an object by its kind. A list may contain lists, one level deep.
func (r *reader) object(f field, depth int) error {
	o := &resource{
		kind: f.get("kind").text(), namespace: f.get("metadata", "namespace").text(), name: f.get("metadata", "name").text(), field: f,
	}
	if o.namespace == "" {
		o.namespace = "default"
	}
	kind := strings.TrimSuffix(o.kind, "List")
	switch {
	case kind != o.kind && depth > 1:
		r.lose(f.at(), o.kind, "it is in a list of lists", "import its items by themselves")
	case kind != o.kind:
		return r.list(f, kind, depth)
	default:
		if err := r.spend(f, yamltree.Cost(f.node, r.left)); err != nil {
			return err
		}
		r.single(o)
	}
	return nil
}

// list processes the items of a list. Each costs at least one.
func (r *reader) list(f field, kind string, depth int) error {
	version := f.get("apiVersion").text() // which comes first
	for _, item := range f.get("items").items() {
		if err := r.spend(item, 1); err != nil {
			return err
		}
		item.inherit("kind", kind)
		item.inherit("apiVersion", version)
		if err := r.object(item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// single processes an object that is not a list.
func (r *reader) single(o *resource) {
	f := o.field
	switch ours := strings.HasPrefix(f.get("apiVersion").text(), group); {
	case o.kind == "Service":
		r.services = append(r.services, o)
	case o.kind == "EndpointSlice":
		r.slices = append(r.slices, o)
	case o.kind == "ConfigMap" && o.get("data", "config").node != nil:
		r.configMap(o)
	case ours && kinds[o.kind] != nil:
		kinds[o.kind](r, o, o.get("spec"))
	case o.kind == "":
		r.lose(f.at(), "an object without kind", "it is not known what it is", "")
	default:
		r.lose(f.at(), o.String(), "objects of this kind are not read", "leave it out")
	}
}

// inherit sets a field of a list item from the list, if it is missing.
func (f field) inherit(key, value string) {
	if value != "" && f.node.Kind == yaml.MappingNode && f.get(key).node == nil {
		f.node.Content = slices.Insert(f.node.Content, 0, scalar(key), scalar(value))
	}
}

func scalar(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

// kinds are MetalLB's kinds.
var kinds = map[string]func(*reader, *resource, field){
	"IPAddressPool": func(r *reader, o *resource, spec field) { r.pool(o.String(), o.name, spec, o.labels()) },
	"AddressPool":   (*reader).oldPool,
	"BGPAdvertisement": func(r *reader, o *resource, spec field) {
		r.adverts = append(r.adverts, advert{what: o.String(), name: o.name, field: spec.or(o.field)})
	},
	"L2Advertisement": func(r *reader, o *resource, spec field) {
		r.adverts = append(r.adverts, advert{what: o.String(), name: o.name, field: spec.or(o.field), layer2: true})
	},
	"BGPPeer":    func(r *reader, o *resource, spec field) { r.peers = append(r.peers, peer{o.String(), o.name, spec}) },
	"BFDProfile": func(r *reader, o *resource, spec field) { r.bfdProfile(o.String(), o.name, spec) },
	"Community":  func(r *reader, _ *resource, spec field) { r.community(spec.get("communities")) },
}

// labels returns the labels of an object.
func (o *resource) labels() map[string]string {
	all := map[string]string{}
	o.get("metadata", "labels").each(func(key string, value field) { all[key] = value.text() })
	return all
}

// or returns f, or an empty field at the position of o, because an advertisement may be
// empty.
func (f field) or(o field) field {
	if f.node == nil {
		return field{scalar(""), o.file, o.at().Line - 1}
	}
	return f
}

func (r *reader) lose(at importer.At, what, why, fix string) {
	r.Lose(importer.Loss{At: at, What: what, Why: why, Fix: fix})
}

// community records the names of communities.
func (r *reader) community(all field) {
	for _, c := range all.items() {
		r.aliases[c.get("name").text()] = c.get("value").text()
	}
}

// modern maps field names of the old ConfigMap to those of the resources.
var modern = map[string]string{
	"my-asn": "myASN", "peer-asn": "peerASN", "peer-address": "peerAddress", "peer-port": "peerPort", "source-address": "sourceAddress",
	"hold-time": "holdTime", "keepalive-time": "keepaliveTime", "connect-time": "connectTime", "router-id": "routerID", "node-selectors": "nodeSelectors",
	"bfd-profile": "bfdProfile", "ebgp-multihop": "ebgpMultiHop", "aggregation-length": "aggregationLength",
	"aggregation-length-v6": "aggregationLengthV6", "localpref": "localPref", "auto-assign": "autoAssign", "avoid-buggy-ips": "avoidBuggyIPs",
	"match-labels": "matchLabels", "match-expressions": "matchExpressions", "receive-interval": "receiveInterval",
	"transmit-interval": "transmitInterval", "detect-multiplier": "detectMultiplier", "echo-interval": "echoInterval", "echo-mode": "echoMode",
	"passive-mode": "passiveMode", "minimum-ttl": "minimumTtl",
}

// configMap reads the configuration from before there were resources.
func (r *reader) configMap(o *resource) {
	text := o.get("data", "config")
	before := text.at().Line
	if text.node.Style&yaml.LiteralStyle == 0 {
		before-- // the text starts on the line of its key
	}
	docs, bad := yamltree.Parse("config", []byte(text.text()))
	if bad != nil {
		at := importer.At{File: o.file, Line: before + bad.Line}
		r.lose(at, o.String(), "its config cannot be read: "+bad.Message, "")
		return
	}
	if len(docs) == 0 {
		return
	}
	rename(docs[0], 0)
	field{docs[0], o.file, before}.each(func(key string, value field) {
		for i, item := range value.items() {
			name := item.get("name").text()
			switch key {
			case "peers":
				r.peers = append(r.peers, peer{fmt.Sprintf("peer %d", i+1), fmt.Sprintf("peer-%d", i+1), item})
			case "address-pools":
				r.configPool(name, item)
			case "bfd-profiles":
				r.bfdProfile("bfd-profile "+name, name, item)
			}
		}
		switch {
		case key == "bgp-communities":
			value.each(func(alias string, value field) { r.aliases[alias] = value.text() })
		case !slices.Contains([]string{"peers", "address-pools", "bfd-profiles"}, key):
			r.lose(value.at(), key, "the word is not known here", "leave it out")
		}
	})
}

// configPool reads a pool of the ConfigMap, which includes its advertisements.
func (r *reader) configPool(name string, f field) {
	r.poolWith("address-pool "+name, name, f, "bgp-advertisements")
}

// oldPool reads an AddressPool, the predecessor of IPAddressPool.
func (r *reader) oldPool(o *resource, spec field) {
	r.poolWith(o.String(), o.name, spec, "bgpAdvertisements")
}

// poolWith reads a pool that includes its advertisements.
func (r *reader) poolWith(what, name string, f field, key string) {
	r.pool(what, name, f, nil)
	switch f.get("protocol").text() {
	case "layer2":
		r.adverts = append(r.adverts, advert{what: what + ": protocol layer2", name: name, field: f.get("protocol"), pools: []string{name}, layer2: true})
	case "bgp":
		all := f.get(key).items()
		if len(all) == 0 {
			all = []field{f.get("protocol")} // as if there were one empty advertisement
		}
		for _, a := range all {
			r.adverts = append(r.adverts, advert{what: what + ": " + key, name: name, field: a, pools: []string{name}})
		}
	}
}

// rename converts the field names of the ConfigMap to those of the resources.
func rename(n *yaml.Node, depth int) {
	const deepest = 20
	if depth > deepest {
		return
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && modern[c.Value] != "" {
			c.Value = modern[c.Value]
		}
		rename(c, depth+1)
	}
}
