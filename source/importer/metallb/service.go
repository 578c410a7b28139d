package metallb

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/importer"
	"github.com/fairlead/fairlead/source/object"
)

// MetalLB's annotations begin with one of these prefixes.
var prefixes = []string{"metallb.io/", "metallb.universe.tf/"}

// annotations maps names without the prefix to the loss that they cause, as reason and fix,
// or to nothing if they cause none.
var annotations = map[string][2]string{
	"loadBalancerIPs":        {},
	"allow-shared-ip":        {},
	"ip-allocated-from-pool": {}, // MetalLB's status
	"address-pool":           {},
}

// service creates a manifest of a Service that MetalLB advertises.
func (r *reader) service(o *resource) {
	spec := o.get("spec")
	if spec.get("type").text() != "LoadBalancer" {
		return // it stays with whatever serves it now
	}
	name := o.name
	if o.namespace != "default" {
		name = o.namespace + "-" + o.name
	}
	m := importer.Manifest{Name: importer.UniqueName(r.taken, name), At: o.at()}
	lose := func(at importer.At, what, why, fix string) {
		r.Lose(importer.Loss{At: at, Service: m.Name, What: what, Why: why, Fix: fix})
	}
	class := spec.get("loadBalancerClass")
	switch text := class.text(); {
	case strings.Contains(text, "metallb"):
		remove(spec.node, "loadBalancerClass")
	case text != "" && text != object.LoadBalancerClass:
		lose(class.at(), "Service "+o.name, "its class "+text+" is another load balancer's", "it is left out")
		return
	}
	vips := r.annotate(o, lose)
	if len(vips) == 0 {
		lose(o.at(), "Service "+o.name, "it has no address: MetalLB chose one, which stands in its status",
			"import what kubectl get services -o yaml prints; it is left out")
		return
	}
	remove(child(o.node, "metadata"), "managedFields")
	r.finish(o, m, lose)
}

// finish adds a Service's slices, and adds the manifest if an agent would accept it.
func (r *reader) finish(o *resource, m importer.Manifest, lose func(at importer.At, what, why, fix string)) {
	mine := []*resource{o}
	for _, s := range r.slices {
		if s.namespace == o.namespace && s.get("metadata", "labels", "kubernetes.io/service-name").text() == o.name {
			remove(child(s.node, "metadata"), "managedFields")
			mine = append(mine, s)
		}
	}
	if len(mine) == 1 {
		lose(o.at(), "servers of Service "+o.name, "the input has none of its EndpointSlices",
			"add what kubectl get endpointslices -o yaml prints")
	}
	for _, x := range mine {
		text, err := importer.Encode(x.node)
		if err != nil {
			lose(x.at(), x.String(), err.Error(), "it is left out")
			return
		}
		m.Objects = append(m.Objects, text)
	}
	taken, losses := m.Check()
	for _, l := range losses {
		if !taken {
			l.Fix = "the Service is left out: write it by hand"
		}
		r.Lose(l)
	}
	if !taken {
		return
	}
	r.Manifests = append(r.Manifests, m)
	if o.get("metadata", "annotations", object.AnnotationForwardingMode).node == nil {
		lose(o.at(), "the way from node to pod, kube-proxy's", "load balancers send packets directly to the pods, with forwarding mode "+string(service.DefaultMethod),
			"run fairlead agent --role dsr on the pods' nodes, or set "+object.AnnotationForwardingMode+" to "+string(service.FullNAT))
	}
}

// annotate replaces MetalLB's annotations with Fairlead's, and returns the Service's
// addresses.
func (r *reader) annotate(o *resource, lose func(at importer.At, what, why, fix string)) (vips []netip.Addr) {
	for _, in := range o.get("status", "loadBalancer", "ingress").items() {
		vips = addAddr(vips, in.get("ip").text())
	}
	for _, own := range strings.Split(o.get("metadata", "annotations", object.AnnotationAddresses).text(), ",") {
		vips = addAddr(vips, own)
	}
	var drop []string
	set := map[string]string{}
	var asked []netip.Addr
	o.get("metadata", "annotations").each(func(key string, value field) {
		short, ours := cutPrefix(key)
		switch why, known := annotations[short]; {
		case key == "kubectl.kubernetes.io/last-applied-configuration":
		case !ours:
			return
		case short == "loadBalancerIPs":
			for ip := range strings.SplitSeq(value.text(), ",") {
				asked = addAddr(asked, ip)
			}
		case short == "allow-shared-ip" && value.text() != "":
			set[object.AnnotationAddressSharingKey] = value.text()
		case short == "address-pool" && r.poolNames[value.text()] != "":
			set[object.AnnotationAddressPool] = r.poolNames[value.text()]
		case short == "address-pool":
			lose(value.at(), "annotation "+key, "the pool is not among what is written here", "the Service keeps the addresses that it has")
		case !known:
			lose(value.at(), "annotation "+key, "it is not known here", "leave it out")
		case why != [2]string{}:
			lose(value.at(), "annotation "+key, why[0], why[1])
		}
		drop = append(drop, key)
	})
	for _, key := range drop {
		remove(child(child(o.node, "metadata"), "annotations"), key)
	}
	if left := child(child(o.node, "metadata"), "annotations"); left != nil && len(left.Content) == 0 {
		remove(child(o.node, "metadata"), "annotations")
	}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		setAnnotation(o.node, key, set[key])
	}
	if len(vips) == 0 && len(asked) > 0 {
		vips = asked
		setAnnotation(o.node, object.AnnotationAddresses, joined(asked))
	}
	if len(vips) == 0 {
		vips = addAddr(vips, o.get("spec", "loadBalancerIP").text())
	}
	for _, ip := range o.get("spec", "externalIPs").texts() {
		vips = addAddr(vips, ip)
	}
	return vips
}

func cutPrefix(key string) (short string, ours bool) {
	for _, p := range prefixes {
		if short, ours := strings.CutPrefix(key, p); ours {
			return short, true
		}
	}
	return key, false
}

func addAddr(all []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || slices.Contains(all, a) {
		return all
	}
	return append(all, a)
}

func joined[T interface{ String() string }](values []T) string {
	var words []string
	for _, v := range values {
		words = append(words, v.String())
	}
	return strings.Join(words, ",")
}

// child returns the value of a key of a mapping, or nil.
func child(n *yaml.Node, key string) *yaml.Node { return field{node: n}.get(key).node }

// remove removes a key from a mapping.
func remove(n *yaml.Node, key string) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// setAnnotation sets an annotation of an object.
func setAnnotation(n *yaml.Node, key, value string) {
	at := n
	for _, step := range []string{"metadata", "annotations"} {
		next := child(at, step)
		if next == nil || next.Kind != yaml.MappingNode {
			remove(at, step)
			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			at.Content = append(at.Content, scalar(step), next)
		}
		at = next
	}
	remove(at, key)
	at.Content = append(at.Content, scalar(key), scalar(value))
}
