package object

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/core/service"
)

// AnnotationNetworkStatus is written by Multus and similar plugins to a Pod: a JSON list of
// its networks ("Kubernetes Network Custom Resource Definition De-facto Standard" 1.3,
// 4.1).
const AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// Pods returns the Pod of a name, or nil if it is unknown.
type Pods func(service.ID) *Object

// pod has the networks of a Pod.
type pod struct{ networks []attached }

// onNetwork is the network of a Service's backends, and its line in the file.
type onNetwork struct {
	name string
	line int
}

// attached is one attachment of a Pod to a network.
type attached struct {
	network string
	addrs   []netip.Addr
}

// ReadPod reads the networks of a Pod, or returns why they are rejected.
func ReadPod(m *metav1.ObjectMeta, at Origin) (*Object, []Fault) {
	o := newObject(KindPod, m, at)
	text, ok := m.Annotations[AnnotationNetworkStatus]
	if !ok {
		return o, nil
	}
	networks, err := readNetworkStatus(text)
	if err != nil {
		return o, []Fault{{annotation(AnnotationNetworkStatus), err.Error()}}
	}
	o.pod = &pod{networks}
	return o, nil
}

func readNetworkStatus(text string) ([]attached, error) {
	var status []struct {
		Name string   `json:"name"`
		IPs  []string `json:"ips"`
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, fmt.Errorf("is no list of networks in JSON (%v); the network plugin (Multus) writes it", err)
	}
	all := make([]attached, 0, len(status))
	for i, s := range status {
		one := attached{network: s.Name}
		for _, ip := range s.IPs {
			a, err := parseAddr(ip)
			if err != nil {
				return nil, fmt.Errorf("[%d].ips: %w", i, err)
			}
			one.addrs = append(one.addrs, a.Unmap())
		}
		all = append(all, one)
	}
	return all, nil
}

// Attached reports whether the networks of a Pod are known.
func (o *Object) Attached() bool { return o.pod != nil }

// on returns a Pod's addresses of one family in a network, and whether it is attached to
// it. A network without a namespace is in the Pod's namespace, or in none.
func (o *Object) on(network string, ipv6 bool) (addrs []netip.Addr, on bool) {
	for _, n := range o.pod.networks {
		if n.network != network && n.network != o.Key.Namespace+"/"+network {
			continue
		}
		on = true
		for _, a := range n.addrs {
			if a.Is6() == ipv6 {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, on
}

// networks returns the names of all networks of a Pod.
func (o *Object) networks() string {
	var names []string
	for _, n := range o.pod.networks {
		names = append(names, fmt.Sprintf("%q", n.network))
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// Network returns the network on which a Service's backends are reached; "" for the cluster
// network.
func (o *Object) Network() string {
	if o == nil || o.service == nil || o.service.network == nil {
		return ""
	}
	return o.service.network.name
}

// podsOf returns the Pods of all endpoints, if the Service has a network.
func (j *Joined) podsOf(pods Pods) (all []*Object) {
	if j.object.Network() == "" {
		return nil
	}
	for _, o := range j.slices {
		for _, e := range o.slice.endpoints {
			var p *Object
			if e.isPod && pods != nil {
				p = pods(service.ID{Namespace: o.Key.Namespace, Name: e.name})
			}
			if p != nil && !p.Attached() {
				p = nil
			}
			all = append(all, p)
		}
	}
	return all
}

// onNetwork returns the slices with the endpoints' addresses replaced by those of their
// Pods in the Service's network. A Pod in a slice of one family may have the other family
// there; families without a VIP count only if there is nothing else.
func (j *Joined) onNetwork() []*Object {
	var served, others []*Object
	next := 0
	for _, o := range j.slices {
		its := j.pods[next : next+len(o.slice.endpoints)]
		next += len(its)
		j.reportStrays(o, its)
		for _, ipv6 := range []bool{false, true} {
			there := o.onNetwork(j.object.Network(), ipv6, its)
			switch {
			case len(there.slice.endpoints) == 0:
			case slices.ContainsFunc(j.object.service.vips, func(vip netip.Addr) bool { return vip.Is6() == ipv6 }):
				served = append(served, there)
			default:
				others = append(others, there)
			}
		}
	}
	if len(served) == 0 {
		return others
	}
	return served
}

// onNetwork returns a slice with those endpoints that have exactly one address of a family
// in a network. The times when they began to serve are carried over.
func (o *Object) onNetwork(network string, ipv6 bool, pods []*Object) *Object {
	moved, s := *o, *o.slice
	moved.slice = &s
	s.ipv6, s.endpoints, s.since = ipv6, nil, map[netip.Addr]span{}
	for i, e := range o.slice.endpoints {
		if pods[i] == nil {
			continue
		}
		addrs, _ := pods[i].on(network, ipv6)
		if len(addrs) != 1 {
			continue
		}
		if said, ok := o.slice.since[e.addr]; ok {
			s.since[addrs[0]] = said
		}
		e.addr = addrs[0]
		s.endpoints = append(s.endpoints, e)
	}
	return &moved
}

// reportStrays reports endpoints of a slice that are unreachable on the Service's network,
// with the reason.
func (j *Joined) reportStrays(o *Object, pods []*Object) {
	network := j.object.Network()
	for i, e := range o.slice.endpoints {
		name := KindPod + " " + o.Key.Namespace + "/" + e.name
		report := func(format string, args ...any) {
			j.report(j.object, j.object.service.network.line, annotation(AnnotationNetwork), format+"; it is left out", args...)
		}
		if e.use == unused {
			continue
		}
		if !e.isPod {
			report("%s of %s has no targetRef to a Pod, which is required to find its address on network %q", e.addr, o.Key, network)
			continue
		}
		if pods[i] == nil {
			report("%s is not there, or has no annotation %s, which Multus writes", name, AnnotationNetworkStatus)
			continue
		}
		found := 0
		for _, ipv6 := range []bool{false, true} {
			addrs, on := pods[i].on(network, ipv6)
			found += len(addrs)
			switch {
			case !on && !ipv6:
				report("%s is not on network %q; it is on %s", name, network, pods[i].networks())
			case len(addrs) > 1:
				report("%s has several %s addresses on network %q (%s): the one to serve is ambiguous; want one address per family", name, family(ipv6), network, join(addrs))
			case on && ipv6 && found == 0:
				report("%s has no address on network %q", name, network)
			}
		}
	}
}

func join(addrs []netip.Addr) string {
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}
