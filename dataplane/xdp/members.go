package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/backendlist"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// member is a server of one frontend.
type member struct {
	*server
	weight     uint32
	maxConns   uint32 // set on the server when the change is complete
	since      int64  // nanoseconds of Unix time, 0 for always
	drained    int64  // same unit, 0 for unknown; not stored in the kernel
	programmed bool   // the change that added or modified it is complete
}

func (m member) entry() backendlist.Entry {
	e := bpf.BalancerMember{Weight: m.weight, MaxConns: m.maxConns, Since: uint64(m.since), Held: oneIf(m.programmed)}
	return backendlist.Entry{Server: m.id, BalancerMember: e}
}

// memberOf returns the member for a backend.
func memberOf(b service.Backend, s *server) member {
	m := member{server: s, weight: b.Weight, maxConns: b.MaxConns}
	if !b.Since.IsZero() {
		m.since = b.Since.UnixNano()
	}
	if !b.Drained.IsZero() {
		m.drained = b.Drained.UnixNano()
	}
	return m
}

// backendOf is the inverse of memberOf.
func backendOf(addr netip.AddrPort, e bpf.BalancerMember) service.Backend {
	return service.Backend{Addr: addr, Weight: e.Weight, MaxConns: e.MaxConns, Since: timeOf(int64(e.Since))}
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}

// drains reports whether it accepts no new flows.
func (m member) drains() bool { return m.key.owner != 0 && m.weight == 0 }

// setServer sets the server's properties to those of the member, and reports whether they
// change.
func (m member) setServer() (changed bool) {
	changed = m.server.maxConns != m.maxConns || m.server.drains != m.drains()
	m.server.maxConns, m.server.drains = m.maxConns, m.drains()
	return changed
}

// members are those of one frontend, by address.
type members []member

func (ms members) find(addr netip.AddrPort) *member {
	at, ok := slices.BinarySearchFunc(ms, addr, func(m member, a netip.AddrPort) int { return m.key.addr.Compare(a) })
	if !ok {
		return nil
	}
	return &ms[at]
}

// appendRing appends the members in the ring builder's type.
func (ms members) appendRing(all []ring.Member) []ring.Member {
	all = slices.Grow(all, len(ms))
	for _, m := range ms {
		all = append(all, ring.Member{ID: m.id, Addr: m.key.addr, Weight: m.weight, Since: timeOf(m.since), Drained: timeOf(m.drained)})
	}
	return all
}

// writeFresh stores the new members of a frontend before packets see them: next to the others, unless
// the frontend is new.
func (d *DataPlane) writeFresh(c *change) error {
	all := c.after.members
	switch {
	case c.before == nil:
		for i := range all {
			all[i].programmed = true // once the frontend is
		}
	case len(c.fresh) == 0:
		return nil
	default:
		all = slices.Concat(c.before.members, c.fresh)
	}
	return d.writeMembers(c.after.value.Id, all)
}

// writeMembers stores in the kernel which servers a frontend has.
func (d *DataPlane) writeMembers(frontend uint32, ms members) error {
	entries := make([]backendlist.Entry, len(ms))
	for i, m := range ms {
		entries[i] = m.entry()
	}
	if err := d.lists.Set(frontend, entries); err != nil {
		return fmt.Errorf("write backends: %w", err)
	}
	return nil
}

// readBackends reads the backends of a frontend. An entry without Held belongs to a change that was
// not completed.
func (d *DataPlane) readBackends(frontend uint32, servers *serverTable) (all []service.Backend) {
	for _, e := range d.lists.Of(frontend) {
		if addr := servers.addrOf(e.Server); addr.IsValid() && e.Held != 0 {
			all = append(all, backendOf(addr, e.BalancerMember))
		}
	}
	slices.SortFunc(all, service.Backend.Compare)
	return all
}
