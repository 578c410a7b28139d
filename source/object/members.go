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

// LabelNetwork on the load balancers' Service, which Kubernetes copies to its
// EndpointSlices, is the network from which they send: its name, or namespace and name
// separated by a dot, because a label cannot contain a slash.
const LabelNetwork = AnnotationPrefix + "network"

// Member is an endpoint of a Service, as seen by the other members.
type Member struct {
	Addr                 netip.Addr
	Node, Name           string
	Serving, Terminating bool
}

// Members returns the endpoints of a Service. It ignores objects other than its slices.
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

// Names returns the names of members, or of their nodes, if they have any.
func Names(members []Member) map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, m := range members {
		if name := cmp.Or(m.Name, m.Node); name != "" {
			names[m.Addr] = name
		}
	}
	return names
}

// Balancers returns the addresses of members, and of the terminating ones, sorted.
func Balancers(members []Member) (all, draining []netip.Addr) {
	for _, m := range members {
		all = append(all, m.Addr)
		if m.Terminating {
			draining = append(draining, m.Addr)
		}
	}
	return sorted(all), sorted(draining)
}

// Selected returns the EndpointSlices in files that any of the selectors matches.
func Selected(objects []*Object, by []source.Selector) (all []*Object) {
	for _, o := range objects {
		if o.slice != nil && slices.ContainsFunc(by, func(s source.Selector) bool { return s.Selects(o.Key.Namespace, o.slice.labels) }) {
			all = append(all, o)
		}
	}
	return all
}

// Senders returns the addresses of the endpoints of EndpointSlices, sorted, and problems:
// endpoints with unknown addresses, or no endpoints at all. by are the selectors of the
// slices.
func Senders(selected []*Object, by []source.Selector, pods Pods) (all []netip.Addr, problems []problem.Problem) {
	if len(by) == 0 {
		return nil, nil
	}
	all = []netip.Addr{} // not nil: known, even if empty
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

// memberAddrs returns the addresses that an endpoint of a slice sends from: its own or, if
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

// HasNetwork reports whether the addresses of an EndpointSlice's members come from their
// Pods.
func (o *Object) HasNetwork() bool { return o != nil && o.slice != nil && o.slice.network != "" }

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
