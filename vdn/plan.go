package vdn

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// State is the input of plans and views, except for the attachments.
type State struct {
	Domain   string
	Revision uint64
	// Networks and Nodes are sorted by name, Peers by domain.
	Networks []Network
	Nodes    []Node
	Peers    []PeerView
	// Slices are the numbers of networks, by name or FederatedName, including those of
	// deleted networks.
	Slices map[string]uint16
}

// MaxSlice is the greatest slice number.
const MaxSlice = 65534

// NumberSlices assigns a number to every name that has none. Once all numbers have been
// used, it reuses those of names that are gone. It returns the new numbers and the names to
// forget.
func NumberSlices(known map[string]uint16, names []string, gone func(name string) bool) (given map[string]uint16, forgotten []string, err error) {
	given = map[string]uint16{}
	var greatest uint16
	for _, id := range known {
		greatest = max(greatest, id)
	}
	var left []string // numbers that can be reused
	for _, name := range names {
		if known[name] != 0 || given[name] != 0 {
			continue
		}
		if greatest < MaxSlice {
			greatest++
			given[name] = greatest
			continue
		}
		if left == nil {
			left = goneNames(known, gone)
		}
		if len(left) == 0 {
			return nil, nil, conflict("network "+name, "", "all %d numbers of slices are used: delete networks", MaxSlice)
		}
		given[name] = known[left[0]]
		forgotten = append(forgotten, left[0])
		left = left[1:]
	}
	return given, forgotten, nil
}

// goneNames returns the names in the order of their numbers; never nil.
func goneNames(known map[string]uint16, gone func(string) bool) []string {
	names := []string{}
	for name := range known {
		if gone(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(known[a], known[b]) })
	return names
}

// PlanFor returns the plan of a node; local are its attachments.
func PlanFor(s State, node Node, local []Attachment) Plan {
	p := Plan{Revision: s.Revision, Slices: []Slice{}, Local: append([]Attachment{}, local...)}
	slices.SortFunc(p.Local, func(a, b Attachment) int { return strings.Compare(a.ID, b.ID) })
	rights := rightsOf(s)
	for _, n := range s.Networks {
		p.Slices = append(p.Slices, Slice{
			ID: s.Slices[n.Name], Name: n.Name, Mode: n.wholeDevices(), Prefixes: n.Prefixes(),
			GuaranteedRate: n.GuaranteedRate, MaxRate: n.MaxRate, MaxRatePerHost: n.MaxRatePerHost,
			PeerNetworks: rights[n.Name], AllowedCIDRs: n.AllowedCIDRs,
		})
	}
	for _, o := range s.accepted() {
		name := o.name()
		p.Slices = append(p.Slices, Slice{ID: s.Slices[name], Name: name, Prefixes: o.Prefixes, PeerNetworks: rights[name]})
		for _, to := range o.Prefixes {
			if node.Gateway {
				p.Routes = append(p.Routes, Route{Dst: to, GW: o.nextHop(to.Addr().Is4())})
			}
		}
	}
	slices.SortFunc(p.Slices, func(a, b Slice) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(p.Routes, func(a, b Route) int { return comparePrefix(a.Dst, b.Dst) })
	return p
}

// wholeDevices returns HostDevice for a network of that mode, or "".
func (n Network) wholeDevices() Mode {
	if n.Mode == HostDevice {
		return HostDevice
	}
	return ""
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// accepted returns the accepted networks of peers.
func (s State) accepted() (all []offered) {
	for i := range s.Peers {
		p := &s.Peers[i]
		for k := range p.Networks {
			if p.Networks[k].Refused == "" {
				all = append(all, offered{&p.Peer, &p.Networks[k]})
			}
		}
	}
	return all
}

// rightsOf returns the sorted slice numbers that each network may communicate with: those
// where both name each other.
func rightsOf(s State) map[string][]uint16 {
	names := map[string]map[string]bool{} // what each network names
	for _, n := range s.Networks {
		names[n.Name] = setOf(n.PeerNetworks)
	}
	for _, o := range s.accepted() {
		names[o.name()] = setOf(o.PeerNetworks)
	}
	rights := map[string][]uint16{}
	for name, reach := range names {
		for other := range reach {
			if names[other][name] && s.Slices[other] != 0 {
				rights[name] = append(rights[name], s.Slices[other])
			}
		}
		slices.Sort(rights[name])
	}
	return rights
}

func setOf(all []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range all {
		set[s] = true
	}
	return set
}

// OfferFor returns the offer for a peer: the networks shared with it, and their hosts that
// are up.
func OfferFor(s State, domain string, attachments []Attachment) Offer {
	o := Offer{Domain: s.Domain, Networks: []SharedNetwork{}}
	hosts := map[string][]SharedHost{}
	for _, a := range attachments {
		if a.Phase != Up {
			continue
		}
		h := SharedHost{Owner: a.Owner}
		for _, p := range a.Addresses {
			h.Addresses = append(h.Addresses, p.Addr())
		}
		hosts[a.Network] = append(hosts[a.Network], h)
	}
	for _, n := range s.Networks {
		if !slices.Contains(n.SharedWith, domain) {
			continue
		}
		shared := SharedNetwork{Name: n.Name, Prefixes: n.Prefixes(), Hosts: hosts[n.Name]}
		for _, r := range n.PeerNetworks {
			if name, ok := strings.CutPrefix(r, domain+"/"); ok {
				shared.PeerNetworks = append(shared.PeerNetworks, name)
			}
		}
		slices.SortFunc(shared.Hosts, func(a, b SharedHost) int { return slices.CompareFunc(a.Addresses, b.Addresses, netip.Addr.Compare) })
		o.Networks = append(o.Networks, shared)
	}
	return o
}
