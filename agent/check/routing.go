package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/manifest"
	"github.com/fairlead/fairlead/source/object"
	"github.com/fairlead/fairlead/vdn"
)

// Kinds of objects for routing.
const kindPeer, kindAdvertisement, kindPool = "BGPPeer", "Advertisement", "AddressPool"

// routing checks peers and Advertisements, and plans for each node.
func (k *checker) routing() {
	k.names()
	var offering []source.Advertisements
	if len(k.Nodes) == 0 {
		advertises, problems := k.read.OfAnyNode(k.onePeer)
		k.all(RuleInvalid, k.clusterProblems(problems))
		k.planUnlessCluster(advertises, k.DataPlanes)
		offering = append(offering, advertises)
	}
	for _, n := range k.Nodes {
		advertises, problems := k.read.OfNode(n.Labels, k.Peers)
		k.all(RuleInvalid, k.clusterProblems(problems))
		of := k.DataPlanes
		if n.DataPlane != "" && !slices.Contains(of, n.DataPlane) {
			of = append(slices.Clone(of), n.DataPlane)
		}
		k.planUnlessCluster(advertises, of)
		offering = append(offering, advertises)
	}
	k.refusals()
	k.selected(offering)
}

// onePeer returns the problems of each peer on its own: which of them have the same node is
// not known.
func (k *checker) onePeer(peers []crd.Peer) (problems []problem.Problem) {
	if k.Peers == nil {
		return nil
	}
	for _, p := range peers {
		problems = append(problems, k.Peers([]crd.Peer{p})...)
	}
	return problems
}

// clusterProblems leaves out missing Secrets: those of a cluster are not in its manifests.
func (k *checker) clusterProblems(problems []problem.Problem) []problem.Problem {
	if !k.Cluster {
		return problems
	}
	return slices.DeleteFunc(problems, func(p problem.Problem) bool { return p.Field == "spec.passwordSecretRef" })
}

func (k *checker) planUnlessCluster(advertises source.Advertisements, dataPlanes []string) {
	if !k.Cluster { // where endpoints are not known
		k.plan(advertises, dataPlanes)
	}
}

// names checks the names of peers and pools in Advertisements, and node selectors. Without
// any object of a kind, those may be elsewhere.
func (k *checker) names() {
	peers, pools := k.read.Routing(kindPeer), k.read.Routing(kindPool)
	for _, a := range k.read.Routing(kindAdvertisement) {
		k.named(a, "peers", a.Peers, peers, RuleUnknownPeer)
		k.named(a, "pools", a.Pools, pools, RuleUnknownPool)
		k.ofNoNode(a)
	}
	for _, p := range peers {
		k.ofNoNode(p)
	}
}

func (k *checker) named(a manifest.Routing, field string, names []string, known []manifest.Routing, r Rule) {
	if len(known) == 0 {
		return
	}
	for i, name := range names {
		if !slices.ContainsFunc(known, func(o manifest.Routing) bool { return o.Key.Name == name }) {
			k.add(Warning, r, a.Problem(a.Line, fmt.Sprintf("spec.%s[%d]", field, i), "there is no %s %s; want %s", known[0].Key.Kind, name, nameList(known)))
		}
	}
}

func nameList(all []manifest.Routing) string {
	var names []string
	for _, o := range all {
		names = append(names, o.Key.Name)
	}
	return service.Alternatives(names)
}

// ofNoNode warns about an object that no node uses.
func (k *checker) ofNoNode(o manifest.Routing) {
	selects := func(n Node) bool { return o.Selects(n.Labels) }
	if len(k.Nodes) > 0 && !slices.ContainsFunc(k.Nodes, selects) {
		var names []string
		for _, n := range k.Nodes {
			names = append(names, n.Name)
		}
		k.add(Warning, RuleNoMatchingNode, o.Problem(o.Line, "spec.nodeSelector", "selects no node (%s); correct it, or the --node-labels of a node", strings.Join(names, ", ")))
	}
}

// selected warns about Advertisements under which no node advertises anything.
func (k *checker) selected(of []source.Advertisements) {
	if k.Cluster || len(k.read.Services) == 0 {
		return
	}
	used := map[string]bool{}
	for _, a := range of {
		if a == nil {
			continue
		}
		for _, s := range k.read.Services {
			for _, f := range s.Frontends {
				offers, _ := a.Offers(s, f.VIP)
				for _, o := range offers {
					used[o.By] = true
				}
			}
		}
	}
	for _, a := range k.read.Routing(kindAdvertisement) {
		if !used[a.Key.String()] && !k.unused(a) {
			k.add(Warning, RuleSelectsNothing, a.Problem(a.Line, "", "selects no address of these Services; correct its pools, addresses or serviceSelector, or remove it"))
		}
	}
}

// unused reports whether an Advertisement is for no node, which has a finding of its own.
func (k *checker) unused(a manifest.Routing) bool {
	return len(k.Nodes) > 0 && !slices.ContainsFunc(k.Nodes, func(n Node) bool { return a.Selects(n.Labels) })
}

// pools checks the requests for addresses as the controller does, if there are pools.
func (k *checker) pools() {
	pools, refused, known := k.allocator()
	objects := k.read.Routing(kindPool)
	if len(objects) == 0 {
		return
	}
	for _, p := range objects {
		if err := refused[p.Key.Name]; err != nil {
			k.add(Error, RuleInvalid, p.Problem(p.Line, "spec.addresses", "%s", err))
		}
	}
	names := nameList(objects)
	k.read.Asks(func(s *object.Object, labels map[string]string, ask object.Ask) {
		for _, name := range ask.Pools {
			if known[name] == nil {
				k.add(Warning, RuleUnknownPool, s.Problem(s.Line, "metadata.annotations["+object.AnnotationAddressPool+"]", "there is no AddressPool %s; want %s", name, names))
			}
		}
		r := request(s, labels, ask, known)
		for _, f := range pools.Assign(service.ID{Namespace: s.Key.Namespace, Name: s.Key.Name}, r).Missing {
			if f.Reason != addresspool.Conflict || k.Cluster { // without a controller, the plan decides
				k.add(Warning, RulePool, s.Problem(s.Line, "", "%s: %s", f.Reason, f.Message))
			}
		}
	})
}

// request returns what a Service asks of the pools.
func request(s *object.Object, labels map[string]string, ask object.Ask, known map[string]*crd.Pool) addresspool.Request {
	r := addresspool.Request{Wanted: ask.Addresses, Named: ask.Pools, SharingKey: ask.SharingKey}
	r.Barred = func(pool string) string {
		if p := known[pool]; !p.ByNamespaceLabels() {
			return p.Barred(s.Key.Namespace, nil, labels)
		}
		return "" // the labels of the namespace are not known
	}
	for _, a := range ask.Addresses {
		if f := addresspool.FamilyOf(a); !slices.Contains(r.Families, f) {
			r.Families = append(r.Families, f)
		}
	}
	for _, p := range ask.Ports {
		r.Ports = append(r.Ports, addresspool.Port{Protocol: p.Protocol, First: p.Port, Last: p.Last})
	}
	return r
}

// allocator returns an allocator with the pools, the errors of rejected ones, and all pools
// by name.
func (k *checker) allocator() (a *addresspool.Allocator, refused map[string]error, known map[string]*crd.Pool) {
	a, known = addresspool.New(), map[string]*crd.Pool{}
	var all []addresspool.Pool
	for _, p := range k.read.Routing(kindPool) {
		known[p.Key.Name] = p.Pool
		all = append(all, p.Pool.Pool)
	}
	return a, a.SetPools(all), known
}

// networks validates VirtualNetworks.
func (k *checker) networks() {
	all, err := k.read.Networks()
	if err != nil {
		k.add(Error, RuleInvalid, problem.Problem{Message: err.Error()})
	}
	for _, o := range all {
		n := vdn.Network{}
		err := json.Unmarshal(o.Spec, &n)
		n.Name = o.Name
		if err == nil {
			err = n.Validate()
		}
		var each vdn.Problems
		switch {
		case errors.As(err, &each):
			for _, p := range each {
				k.add(Error, RuleInvalid, o.Problem(o.Line, "spec."+p.Field, "%s", p.Text))
			}
		case err != nil:
			k.add(Error, RuleInvalid, o.Problem(o.Line, "spec", "%s", err))
		}
	}
}
