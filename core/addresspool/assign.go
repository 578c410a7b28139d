package addresspool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
)

// Reason is why a Service has not got what it asks for, or what is odd about
// what it has: one word, as Kubernetes writes reasons of conditions.
type Reason string

// The reasons.
const (
	// Exhausted: the pools that it may have are empty.
	Exhausted Reason = "PoolExhausted"
	// NoPool: there is no pool that it may have.
	NoPool Reason = "NoPool"
	// NotInPool: the address that it asks for is in no pool that it may have.
	NotInPool Reason = "NotInPool"
	// Conflict: another Service has the address that it asks for.
	Conflict Reason = "AddressConflict"
	// WrongFamily: the address that it asks for is not of its families, or it
	// requires a family of which it asks for none.
	WrongFamily Reason = "WrongFamily"
	// OutsidePools: it keeps an address that is in no pool any more.
	OutsidePools Reason = "OutsidePools"
	// NotItsPool: it keeps an address of a pool that is not for it any more.
	NotItsPool Reason = "NotItsPool"
	// PortOverlap: it shares an address, and one of its ports with another.
	PortOverlap Reason = "PortOverlap"
)

// Finding is a Reason and what is to be said of it.
type Finding struct {
	Reason  Reason
	Message string
}

// Result is what a Service has now.
type Result struct {
	Addrs []netip.Addr
	// Missing is what it asks for and has not got.
	Missing []Finding
	// Odd is what is to be said of what it has.
	Odd []Finding
	// Changed says that its addresses are others than before, or what it serves
	// on them: something may have become free.
	Changed bool
}

// Assign gives a Service what it asks for. What it has already stays, as long
// as it asks for no other: another family, another address, another pool by
// name. That holds too where its pool has gone, or is not for it any more;
// Result.Odd then says so. Where it cannot get what it asks for, it keeps what
// it has. The lowest address that is free is taken. What it had and has no more
// is free for others only after Settle.
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

// settled says that a Service has just what it asks for: the usual case, which
// moves nothing.
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

// wanted gives the very addresses asked for, all or none of them.
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
			res.Missing = append(res.Missing, Finding{WrongFamily, fmt.Sprintf("it requires %s, too, of which it asks for no address", f)})
		}
	}
	if len(res.Missing) > 0 {
		res.keep(a, id, had, r)
	}
	return res
}

// keep leaves a Service what it has.
func (res *Result) keep(a *Allocator, id service.ID, had []netip.Addr, r Request) {
	res.Addrs, res.Odd = had, nil
	for _, addr := range had {
		res.Odd = append(res.Odd, a.odd(id, addr, r)...)
	}
}

// refuse says why a Service may not have an address that it asks for.
func (a *Allocator) refuse(id service.ID, addr netip.Addr, r Request) *Finding {
	if !slices.Contains(r.Families, FamilyOf(addr)) {
		return &Finding{WrongFamily, fmt.Sprintf("it asks for %s, but its families are %s", addr, families(r.Families))}
	}
	if f := a.outside(addr, r); f != nil {
		f.Message = "it asks for " + f.Message
		return f
	}
	t := a.places[addr]
	if t == nil {
		return nil
	}
	if !a.mayShare(addr, r) {
		return &Finding{Conflict, fmt.Sprintf("it asks for %s, which %s has; Services share an address if both have the same sharing key", addr, t.someone())}
	}
	if c, ok := t.clash(id, r.Ports); ok {
		return &Finding{Conflict, fmt.Sprintf("it asks for %s, where %s has %s", addr, c.id, c.Port)}
	}
	if other, ok := t.leaver(id); ok {
		return &Finding{Conflict, fmt.Sprintf("it asks for %s, which %s has until its status says that it has it no more", addr, other)}
	}
	return nil
}

// someone names a user of an address.
func (t *tenancy) someone() string {
	c, ok := t.clash(service.ID{}, []Port{{Protocol: service.AnyProtocol, Last: 65535}})
	if !ok {
		return "another Service"
	}
	return c.id.String()
}

// outside says why an address is in no pool that a Service may have.
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
			return "reserved or left out in pool " + p.Name
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

// odd says what is to be said of an address that a Service has.
func (a *Allocator) odd(id service.ID, addr netip.Addr, r Request) (all []Finding) {
	if f := a.outside(addr, Request{Barred: r.Barred}); f != nil {
		reason := NotItsPool
		if a.poolOf(addr) == nil {
			reason = OutsidePools
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

// anyOf gives an address of each family, of whatever pool.
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

// pick finds an address of a family: one that is shared already, else the
// lowest that is free of the first pool that has one.
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
		return netip.Addr{}, &Finding{NoPool, a.noPool(f, r, not)}
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

// shared gives the lowest address of a pool that is had under a Service's key
// and where its ports are free.
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
	return fmt.Sprintf("no pool that it may have has %s addresses: pool %s", f, shortList(not))
}

// shortList writes a list, and of a long one only the beginning.
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
