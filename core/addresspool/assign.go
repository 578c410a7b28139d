package addresspool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Reason says why a Service did not get what it asks for, or what is wrong with what it
// has. It is a CamelCase word like the reasons of Kubernetes conditions.
type Reason string

// Reasons.
const (
	// Exhausted: the pools that the Service may use have no free address.
	Exhausted Reason = "PoolExhausted"
	// NoMatchingPool: there is no pool that the Service may use.
	NoMatchingPool Reason = "NoMatchingPool"
	// NotInPool: the requested address is in no pool that the Service may use.
	NotInPool Reason = "NotInPool"
	// Conflict: another Service has the requested address.
	Conflict Reason = "AddressConflict"
	// IPFamilyMismatch: the requested address is not of the Service's families, or the Service
	// requires a family of which it requests no address.
	IPFamilyMismatch Reason = "IPFamilyMismatch"
	// AddressOutsidePools: the Service keeps an address that is no longer in any pool.
	AddressOutsidePools Reason = "AddressOutsidePools"
	// PoolNotAllowed: the Service keeps an address of a pool that it may no longer use.
	PoolNotAllowed Reason = "PoolNotAllowed"
	// PortOverlap: the Service shares an address, and one of its ports overlaps another
	// Service's.
	PortOverlap Reason = "PortOverlap"
)

// Finding is a Reason with its message.
type Finding struct {
	Reason  Reason
	Message string
}

// Result is what a Service has after Assign.
type Result struct {
	Addrs []netip.Addr
	// Missing says what the Service asks for but did not get.
	Missing []Finding
	// Odd holds the findings about the addresses that the Service has.
	Odd []Finding
	// Changed reports whether its addresses or ports changed, so that something may have
	// become free.
	Changed bool
}

// Assign gives a Service the addresses that it asks for. It keeps those that it has
// unless it asks for different ones: another family, address or named pool. This also
// holds if their pool no longer exists or is no longer usable for the Service; Result.Odd
// then says so. If the request cannot be satisfied, the Service keeps what it has. Assign
// takes the lowest free address. Addresses that the Service had before become available
// to others only after Settle.
func (a *Allocator) Assign(id service.ID, r Request) Result {
	had := distinct(r.Current)
	before, ok := a.held[id]
	if ok {
		had = slices.Clone(before.addrs)
		if a.settled(before, r) {
			var res Result
			res.keep(a, id, had, r)
			return res
		}
	}
	a.depart(id, had)
	a.vacate(id)
	had = slices.DeleteFunc(had, func(addr netip.Addr) bool {
		return !a.mayShare(addr, r) || !slices.Contains(r.Families, FamilyOf(addr))
	})
	var res Result
	if len(r.Wanted) > 0 {
		res = a.wanted(id, r, had)
	} else {
		res = a.anyOf(id, r, had)
	}
	a.hold(id, r, res.Addrs)
	res.Changed = !before.equal(a.held[id])
	return res
}

// settled reports whether a Service already has exactly what it asks for: the common
// case, which changes nothing.
func (a *Allocator) settled(h holding, r Request) bool {
	if h.key != r.SharingKey || !slices.Equal(h.ports, r.Ports) {
		return false
	}
	if len(r.Wanted) > 0 {
		return !r.Required && slices.Equal(r.Wanted, h.addrs) &&
			!slices.ContainsFunc(h.addrs, func(addr netip.Addr) bool { return !slices.Contains(r.Families, FamilyOf(addr)) })
	}
	return slices.EqualFunc(r.Families, h.addrs, func(f Family, addr netip.Addr) bool {
		p := a.poolOf(addr)
		return FamilyOf(addr) == f && (p == nil || len(r.Named) == 0 || slices.Contains(r.Named, p.Name))
	})
}

// wanted assigns the explicitly requested addresses, all or none.
func (a *Allocator) wanted(id service.ID, r Request, had []netip.Addr) (res Result) {
	res.Addrs = distinct(r.Wanted)
	for _, addr := range res.Addrs {
		if slices.Contains(had, addr) {
			res.Odd = append(res.Odd, a.odd(id, addr, r)...)
		} else if f := a.refuse(id, addr, r); f != nil {
			res.Missing = append(res.Missing, *f)
		}
	}
	for _, f := range r.Families {
		of := func(addr netip.Addr) bool { return FamilyOf(addr) == f }
		if r.Required && !slices.ContainsFunc(res.Addrs, of) {
			res.Missing = append(res.Missing, Finding{IPFamilyMismatch, fmt.Sprintf("it requires %s, but requests no such address", f)})
		}
	}
	if len(res.Missing) > 0 {
		res.keep(a, id, had, r)
	}
	return res
}

// keep leaves the Service's addresses unchanged.
func (res *Result) keep(a *Allocator, id service.ID, had []netip.Addr, r Request) {
	res.Addrs, res.Odd = had, nil
	for _, addr := range had {
		res.Odd = append(res.Odd, a.odd(id, addr, r)...)
	}
}

// refuse returns why a Service may not have an address that it requests, or nil.
func (a *Allocator) refuse(id service.ID, addr netip.Addr, r Request) *Finding {
	if !slices.Contains(r.Families, FamilyOf(addr)) {
		return &Finding{IPFamilyMismatch, fmt.Sprintf("it requests %s, but its families are %s", addr, families(r.Families))}
	}
	if f := a.outside(addr, r); f != nil {
		f.Message = "it requests " + f.Message
		return f
	}
	t := a.places[addr]
	if t == nil {
		return nil
	}
	if !a.mayShare(addr, r) {
		return &Finding{Conflict, fmt.Sprintf("it requests %s, which %s has; Services share an address if both have the same sharing key", addr, t.someone())}
	}
	if c, ok := t.clash(id, r.Ports); ok {
		return &Finding{Conflict, fmt.Sprintf("it requests %s, where %s has %s", addr, c.id, c.Port)}
	}
	if other, ok := t.leaver(id); ok {
		return &Finding{Conflict, fmt.Sprintf("it requests %s, which is still in the status of %s", addr, other)}
	}
	return nil
}

// someone names one user of an address.
func (t *tenancy) someone() string {
	c, ok := t.clash(service.ID{}, []Port{{Protocol: service.AnyProtocol, Last: 65535}})
	if !ok {
		return "another Service"
	}
	return c.id.String()
}

// outside returns why an address is in no pool that a Service may use, or nil.
func (a *Allocator) outside(addr netip.Addr, r Request) *Finding {
	p := a.poolOf(addr)
	if p == nil {
		return &Finding{NotInPool, fmt.Sprintf("%s, which is %s", addr, a.nowhere(addr))}
	}
	if len(r.Named) > 0 && !slices.Contains(r.Named, p.Name) {
		return &Finding{NotInPool, fmt.Sprintf("%s, which is of pool %s, and for pool %s", addr, p.Name, strings.Join(r.Named, ", "))}
	}
	if why := r.barred(p); why != "" {
		return &Finding{NotInPool, fmt.Sprintf("%s of pool %s, which %s", addr, p.Name, why)}
	}
	return nil
}

func (a *Allocator) nowhere(addr netip.Addr) string {
	if node := a.nodes[addr]; node != "" {
		return "the address of node " + node
	}
	for _, p := range a.pools {
		if p.all[FamilyOf(addr)].contains(addr) {
			return "reserved or excluded in pool " + p.Name
		}
	}
	return "in no pool"
}

func (r Request) barred(p *pool) string {
	if r.Barred == nil {
		return ""
	}
	return r.Barred(p.Name)
}

// odd returns the findings about an address that a Service has.
func (a *Allocator) odd(id service.ID, addr netip.Addr, r Request) (all []Finding) {
	if f := a.outside(addr, Request{Barred: r.Barred}); f != nil {
		reason := PoolNotAllowed
		if a.poolOf(addr) == nil {
			reason = AddressOutsidePools
		}
		all = append(all, Finding{reason, "it keeps " + f.Message})
	}
	if t := a.places[addr]; t != nil {
		if c, ok := t.clash(id, r.Ports); ok {
			all = append(all, Finding{PortOverlap, fmt.Sprintf("it shares %s with %s, which has %s, too", addr, c.id, c.Port)})
		}
	}
	return all
}

// anyOf assigns an address of each family, from any permitted pool.
func (a *Allocator) anyOf(id service.ID, r Request, had []netip.Addr) (res Result) {
	for _, f := range r.Families {
		i := slices.IndexFunc(had, func(addr netip.Addr) bool {
			p := a.poolOf(addr)
			return FamilyOf(addr) == f && (p == nil || len(r.Named) == 0 || slices.Contains(r.Named, p.Name))
		})
		if i >= 0 {
			res.Addrs = append(res.Addrs, had[i])
			res.Odd = append(res.Odd, a.odd(id, had[i], r)...)
			continue
		}
		addr, missing := a.pick(id, f, r)
		if missing == nil {
			res.Addrs = append(res.Addrs, addr)
			continue
		}
		res.Missing = append(res.Missing, *missing)
		for _, old := range had {
			if FamilyOf(old) == f && !r.Required {
				res.Addrs = append(res.Addrs, old)
				res.Odd = append(res.Odd, a.odd(id, old, r)...)
			}
		}
	}
	if r.Required && len(res.Missing) > 0 {
		res.keep(a, id, had, r)
	}
	return res
}

// pick finds an address of a family: one that can be shared, otherwise the lowest free
// address of the first pool that has one.
func (a *Allocator) pick(id service.ID, f Family, r Request) (netip.Addr, *Finding) {
	var ask []*pool
	var not []string
	for _, p := range a.pools {
		if len(r.Named) > 0 && !slices.Contains(r.Named, p.Name) {
			continue
		}
		switch why := r.barred(p); {
		case len(p.usable[f]) == 0:
		case why != "":
			not = append(not, p.Name+" "+why)
		case p.Manual && len(r.Named) == 0:
			not = append(not, p.Name+" serves only who names it")
		default:
			ask = append(ask, p)
		}
	}
	if len(ask) == 0 {
		return netip.Addr{}, &Finding{NoMatchingPool, a.noPool(f, r, not)}
	}
	for _, p := range ask {
		if addr, ok := a.shared(id, p, f, r); ok {
			return addr, nil
		}
	}
	var full []string
	for _, p := range ask {
		if len(p.free[f]) > 0 {
			return p.free[f][0].First, nil
		}
		full = append(full, fmt.Sprintf("pool %s has no %s address left (%d of %[3]d in use)", p.Name, f, p.used[f]))
	}
	return netip.Addr{}, &Finding{Exhausted, shortList(full)}
}

// shared returns the lowest address of a pool that is in use under the Service's key and
// on which its ports are free.
func (a *Allocator) shared(id service.ID, p *pool, f Family, r Request) (netip.Addr, bool) {
	for _, addr := range a.byKey[r.SharingKey] {
		if FamilyOf(addr) != f || !p.usable[f].contains(addr) {
			continue
		}
		_, clash := a.places[addr].clash(id, r.Ports)
		if _, left := a.places[addr].leaver(id); !clash && !left {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func (a *Allocator) noPool(f Family, r Request, not []string) string {
	for _, name := range r.Named {
		if !slices.ContainsFunc(a.pools, func(p *pool) bool { return p.Name == name }) {
			not = append(not, name+" does not exist or is refused")
		}
	}
	if len(not) == 0 {
		return fmt.Sprintf("no pool has %s addresses", f)
	}
	return fmt.Sprintf("no pool that it may use has %s addresses: pool %s", f, shortList(not))
}

// shortList joins a list, and truncates a long one.
func shortList(all []string) string {
	const most = 5
	if len(all) > most {
		return strings.Join(all[:most], "; ") + fmt.Sprintf("; and %d more", len(all)-most)
	}
	return strings.Join(all, "; ")
}

func families(all []Family) string {
	var names []string
	for _, f := range all {
		names = append(names, f.String())
	}
	return strings.Join(names, ", ")
}
