package object

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
)

// LabelNetwork on the Service of load balancers, which Kubernetes copies to its
// EndpointSlices, is the network from which they send: its name, or namespace and name
// with a dot between, as a label cannot have a slash.
const LabelNetwork = AnnotationPrefix + "network"

// Member is an endpoint of a Service, as those are to each other who are behind it.
type Member struct {
	Addr                 netip.Addr
	Node, Name           string
	Serving, Terminating bool
}

// Members gives the endpoints of a Service. Objects that are none of its slices do
// not count.
func Members(objects []*Object, of service.ID, pods Pods) (all []Member) {
	for _, o := range objects {
		if o.slice == nil || o.Service() != of {
			continue
		}
		for _, e := range o.slice.endpoints {
			for _, a := range o.memberAddrs(e, pods) {
				all = append(all, Member{a, e.node, e.name, e.serving, e.terminating})
			}
		}
	}
	return all
}

// Names gives the names of members, or of their nodes, as far as they have any.
func Names(members []Member) map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, m := range members {
		if name := cmp.Or(m.Name, m.Node); name != "" {
			names[m.Addr] = name
		}
	}
	return names
}

// Balancers gives the addresses of members, and of those of them that are on their way
// out, sorted.
func Balancers(members []Member) (all, draining []netip.Addr) {
	for _, m := range members {
		all = append(all, m.Addr)
		if m.Terminating {
			draining = append(draining, m.Addr)
		}
	}
	return sorted(all), sorted(draining)
}

// Selected gives the EndpointSlices in files that one of these selects.
func Selected(objects []*Object, by []source.Selector) (all []*Object) {
	for _, o := range objects {
		if o.slice != nil && slices.ContainsFunc(by, func(s source.Selector) bool { return s.Selects(o.Key.Namespace, o.slice.labels) }) {
			all = append(all, o)
		}
	}
	return all
}

// Senders gives the addresses of the endpoints of EndpointSlices, sorted, and what is
// wrong with them: an endpoint whose address is not known, and no endpoint at all. by is
// what the slices were selected by; none selects none.
func Senders(selected []*Object, by []source.Selector, pods Pods) (all []netip.Addr, problems []problem.Problem) {
	if len(by) == 0 {
		return nil, nil
	}
	all = []netip.Addr{} // known, if only to be none
	for _, o := range selected {
		for _, e := range o.slice.endpoints {
			addrs := o.memberAddrs(e, pods)
			if all = append(all, addrs...); len(addrs) == 0 {
				problems = append(problems, o.Problem(o.Line, "metadata.labels["+LabelNetwork+"]",
					"the load balancer %s has no address on network %q (annotation %s of its Pod, which Multus writes); packets that it sends from there are dropped",
					e.addr, o.slice.network, AnnotationNetworkStatus))
			}
		}
	}
	if len(all) == 0 {
		var names []string
		for _, s := range by {
			names = append(names, s.String())
		}
		problems = append(problems, problem.Problem{Object: "load balancers", Field: "--accept-from", Message: "no EndpointSlice of " +
			strings.Join(names, " or ") + " has an endpoint: this node drops all packets that load balancers tunnel to its backends; " +
			"label the load balancers' Services so, or name them"})
	}
	return sorted(all), problems
}

// memberAddrs gives the addresses that an endpoint of a slice sends from: its own or, where
// the slice has a network, those of its Pod there.
func (o *Object) memberAddrs(e endpoint, pods Pods) []netip.Addr {
	network := o.slice.network
	if network == "" {
		return []netip.Addr{e.addr}
	}
	if !e.isPod || pods == nil {
		return nil
	}
	p := pods(service.ID{Namespace: o.Key.Namespace, Name: e.name})
	if p == nil || !p.Attached() {
		return nil
	}
	var all []netip.Addr
	for _, n := range p.pod.networks {
		if n.network == network || n.network == p.Key.Namespace+"/"+network || strings.Replace(n.network, "/", ".", 1) == network {
			all = append(all, n.addrs...)
		}
	}
	return all
}

// HasNetwork says that the members of an EndpointSlice are known by their Pods.
func (o *Object) HasNetwork() bool { return o != nil && o.slice != nil && o.slice.network != "" }

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
