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

// Request is what a Service asks for.
type Request struct {
	// Families are those of which it wants an address, one of each.
	Families []Family
	// Required: all families, or no new address at all.
	Required bool
	// Wanted are the very addresses that it asks for, in place of any of a pool.
	Wanted []netip.Addr
	// Named, where there are any, are the only pools that it may have.
	Named []string
	// Barred says why a pool is not for it, and nothing where it is.
	Barred func(pool string) string
	// SharingKey lets it share an address with Services of the same key, where
	// their Ports do not overlap. Empty: it shares with none.
	SharingKey string
	Ports      []Port
	// Current are the addresses that it has had, for when the Allocator does not
	// know of any.
	Current []netip.Addr
}

// Allocator knows who has which address. It is not safe for several goroutines.
type Allocator struct {
	pools  []*pool // by preference
	nodes  map[netip.Addr]string
	held   map[service.ID]holding
	places map[netip.Addr]*tenancy
	// leaving are the addresses that a Service has no more, and may be known by
	// still.
	leaving map[service.ID][]netip.Addr
	// byKey are the addresses that are had under a sharing key, sorted.
	byKey map[string][]netip.Addr
}

// holding is what a Service has.
type holding struct {
	addrs []netip.Addr
	key   string
	ports []Port
}

func (h holding) equal(o holding) bool {
	return h.key == o.key && slices.Equal(h.addrs, o.addrs) && slices.Equal(h.ports, o.ports)
}

// New makes an Allocator without pools.
func New() *Allocator {
	return &Allocator{
		held: map[service.ID]holding{}, places: map[netip.Addr]*tenancy{}, leaving: map[service.ID][]netip.Addr{},
		byKey: map[string][]netip.Addr{},
	}
}

// SetNodes says which addresses are nodes' own, and of which by name. No Service
// gets any of them. It counts from the next SetPools on.
func (a *Allocator) SetNodes(nodes map[netip.Addr]string) { a.nodes = nodes }

// SetPools replaces all pools. Of two that overlap the later in the list is
// refused; the errors are by the names of pools that are. Who has an address
// keeps it.
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

// Restore gives a Service the addresses that it has by Request.Current, but not
// those that another has under no key or another one: these it is leaving. It is
// for the beginning, before anything is assigned, and quickest before SetPools;
// who comes first keeps an address.
func (a *Allocator) Restore(id service.ID, r Request) {
	a.Release(id)
	kept := slices.DeleteFunc(distinct(r.Current), func(addr netip.Addr) bool { return !a.mayShare(addr, r) })
	a.depart(id, r.Current)
	a.hold(id, r, kept)
}

// Release takes from a Service what it has and what it is leaving, and says
// whether that was anything.
func (a *Allocator) Release(id service.ID) bool {
	had := len(a.held[id].addrs) > 0
	a.vacate(id)
	return a.Settle(id) || had
}

// vacate takes from a Service what it has.
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

// distinct copies a list without those that stand in it twice.
func distinct(addrs []netip.Addr) (all []netip.Addr) {
	for _, addr := range addrs {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// hold makes addresses a Service's; it is not leaving these.
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

// place gives the tenancy of an address, which is not free from now on.
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

// tidy makes an address free where nobody has it or is leaving it.
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

// Held gives what a Service has, sorted as it was asked for.
func (a *Allocator) Held(id service.ID) []netip.Addr { return slices.Clone(a.held[id].addrs) }

// Usage gives how much of a pool is taken; false where there is no such pool.
func (a *Allocator) Usage(name string) (byFamily [2]Usage, ok bool) {
	for _, p := range a.pools {
		if p.Name == name {
			return [2]Usage{p.usage(IPv4), p.usage(IPv6)}, true
		}
	}
	return byFamily, false
}

// OfNodes says which addresses of a pool are not handed out as they are nodes'
// own, in words; empty where none is.
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

// PoolOf names the pool that hands out an address, or had it; empty for none.
func (a *Allocator) PoolOf(addr netip.Addr) string {
	if p := a.poolOf(addr); p != nil {
		return p.Name
	}
	return ""
}

// poolOf gives the pool that may hand out an address.
func (a *Allocator) poolOf(addr netip.Addr) *pool {
	f := FamilyOf(addr)
	for _, p := range a.pools {
		if p.usable[f].contains(addr) {
			return p
		}
	}
	return nil
}

// mayShare says whether nobody has an address, or only who shares it.
func (a *Allocator) mayShare(addr netip.Addr, r Request) bool {
	t := a.places[addr]
	return t == nil || t.users == 0 || t.key != "" && t.key == r.SharingKey
}
