package addresspool

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

func compareClaims(a, b claim) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last), a.id.Compare(b.id))
}

// Request describes what a Service asks for.
type Request struct {
	// Families lists the address families requested, one address of each.
	Families []Family
	// Required: allocate all families, or no new address.
	Required bool
	// Wanted lists explicitly requested addresses, instead of any address of a pool.
	Wanted []netip.Addr
	// Named, if not empty, lists the only pools to allocate from.
	Named []string
	// Barred returns why the Service may not use a pool, or "" if it may.
	Barred func(pool string) string
	// SharingKey allows sharing an address with Services of the same key whose Ports do
	// not overlap. Empty: no sharing.
	SharingKey string
	Ports      []Port
	// Current lists the addresses that the Service had before, used if the Allocator has
	// no record of the Service.
	Current []netip.Addr
}

// Allocator tracks which Service has which address. It is not safe for concurrent use.
type Allocator struct {
	pools  []*pool // by preference
	nodes  map[netip.Addr]string
	held   map[service.ID]holding
	places map[netip.Addr]*tenancy
	// leaving holds the addresses that a Service no longer has but that may still be
	// published in its status.
	leaving map[service.ID][]netip.Addr
	// byKey holds the addresses in use under each sharing key, sorted.
	byKey map[string][]netip.Addr
}

// holding is what a Service currently has.
type holding struct {
	addrs []netip.Addr
	key   string
	ports []Port
}

func (h holding) equal(o holding) bool {
	return h.key == o.key && slices.Equal(h.addrs, o.addrs) && slices.Equal(h.ports, o.ports)
}

// New returns an Allocator without pools.
func New() *Allocator {
	return &Allocator{
		held: map[service.ID]holding{}, places: map[netip.Addr]*tenancy{}, leaving: map[service.ID][]netip.Addr{},
		byKey: map[string][]netip.Addr{},
	}
}

// SetNodes sets the nodes' own addresses, with the name of each node. They are never
// assigned to a Service. It takes effect with the next SetPools.
func (a *Allocator) SetNodes(nodes map[netip.Addr]string) { a.nodes = nodes }

// SetPools replaces all pools. Of two pools that overlap, the later in the list is
// rejected. The returned errors are keyed by the name of the rejected pool. Existing
// assignments do not change.
func (a *Allocator) SetPools(pools []Pool) map[string]error {
	refused := map[string]error{}
	a.pools = nil
	for _, p := range pools {
		made, err := newPool(p, a.nodes)
		if err == nil {
			err = made.apartFrom(a.pools)
		}
		if err != nil {
			refused[p.Name] = err
			continue
		}
		a.pools = append(a.pools, made)
	}
	slices.SortFunc(a.pools, byPreference)
	for _, addr := range slices.SortedFunc(maps.Keys(a.places), netip.Addr.Compare) {
		if p := a.poolOf(addr); p != nil {
			p.take(addr)
		}
	}
	return refused
}

// Restore assigns a Service the addresses in Request.Current, except those that another
// Service has under no key or a different key: the Service is recorded as leaving these.
// It is meant for startup, before any Assign, and is fastest before SetPools. The first
// Service to claim an address keeps it.
func (a *Allocator) Restore(id service.ID, r Request) {
	a.Release(id)
	kept := slices.DeleteFunc(distinct(r.Current), func(addr netip.Addr) bool { return !a.mayShare(addr, r) })
	a.depart(id, r.Current)
	a.hold(id, r, kept)
}

// Release removes a Service's addresses and the ones that it is leaving, and reports
// whether there were any.
func (a *Allocator) Release(id service.ID) bool {
	had := len(a.held[id].addrs) > 0
	a.vacate(id)
	return a.Settle(id) || had
}

// vacate removes a Service's addresses.
func (a *Allocator) vacate(id service.ID) {
	h := a.held[id]
	delete(a.held, id)
	for _, addr := range h.addrs {
		t := a.places[addr]
		if t.leave(id, h.ports); t.users == 0 {
			a.forgetKey(t.key, addr)
			t.key = ""
		}
		a.tidy(addr)
	}
}

// distinct returns a copy of a list without duplicates.
func distinct(addrs []netip.Addr) (all []netip.Addr) {
	for _, addr := range addrs {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// hold assigns addresses to a Service. They are no longer recorded as leaving.
func (a *Allocator) hold(id service.ID, r Request, addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	a.held[id] = holding{addrs, r.SharingKey, r.Ports}
	for _, addr := range addrs {
		t := a.place(addr)
		if t.users == 0 {
			t.key = r.SharingKey
			a.rememberKey(t.key, addr)
		}
		t.enter(id, r.Ports)
		a.stay(id, addr)
	}
}

// place returns the tenancy of an address and marks the address as not free.
func (a *Allocator) place(addr netip.Addr) *tenancy {
	t := a.places[addr]
	if t == nil {
		t = &tenancy{single: map[Port][]service.ID{}}
		a.places[addr] = t
		if p := a.poolOf(addr); p != nil {
			p.take(addr)
		}
	}
	return t
}

// tidy frees an address that no Service has or is leaving.
func (a *Allocator) tidy(addr netip.Addr) {
	if t := a.places[addr]; t.users > 0 || len(t.leaving) > 0 {
		return
	}
	delete(a.places, addr)
	if p := a.poolOf(addr); p != nil {
		p.give(addr)
	}
}

func (a *Allocator) rememberKey(key string, addr netip.Addr) {
	if key == "" {
		return
	}
	at, _ := slices.BinarySearchFunc(a.byKey[key], addr, netip.Addr.Compare)
	a.byKey[key] = slices.Insert(a.byKey[key], at, addr)
}

func (a *Allocator) forgetKey(key string, addr netip.Addr) {
	if at, ok := slices.BinarySearchFunc(a.byKey[key], addr, netip.Addr.Compare); ok {
		a.byKey[key] = slices.Delete(a.byKey[key], at, at+1)
	}
	if len(a.byKey[key]) == 0 {
		delete(a.byKey, key)
	}
}

// Held returns a Service's addresses in the order of its request.
func (a *Allocator) Held(id service.ID) []netip.Addr { return slices.Clone(a.held[id].addrs) }

// Usage returns how many addresses of a pool are taken, or false if there is no such
// pool.
func (a *Allocator) Usage(name string) (byFamily [2]Usage, ok bool) {
	for _, p := range a.pools {
		if p.Name == name {
			return [2]Usage{p.usage(IPv4), p.usage(IPv6)}, true
		}
	}
	return byFamily, false
}

// OfNodes describes which addresses of a pool are not assigned because they belong to
// nodes. Empty if all addresses can be assigned.
func (a *Allocator) OfNodes(name string) string {
	var all []string
	for _, p := range a.pools {
		if p.Name != name {
			continue
		}
		for _, addr := range p.ofNodes {
			all = append(all, fmt.Sprintf("%s of node %s", addr, a.nodes[addr]))
		}
	}
	return shortList(all)
}

// PoolOf returns the name of the pool that an address belongs to, or "".
func (a *Allocator) PoolOf(addr netip.Addr) string {
	if p := a.poolOf(addr); p != nil {
		return p.Name
	}
	return ""
}

// poolOf returns the pool whose usable addresses contain an address.
func (a *Allocator) poolOf(addr netip.Addr) *pool {
	f := FamilyOf(addr)
	for _, p := range a.pools {
		if p.usable[f].contains(addr) {
			return p
		}
	}
	return nil
}

// mayShare reports whether an address has no user, or only users of the same sharing key.
func (a *Allocator) mayShare(addr netip.Addr, r Request) bool {
	t := a.places[addr]
	return t == nil || t.users == 0 || t.key != "" && t.key == r.SharingKey
}
