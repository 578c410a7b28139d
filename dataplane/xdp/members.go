package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
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

func (m member) entry() bpf.BalancerMember {
	e := bpf.BalancerMember{Weight: m.weight, MaxConns: m.maxConns, Since: uint64(m.since)}
	if m.programmed {
		e.Held = 1
	}
	return e
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

// writeMembers stores in the kernel which servers a frontend has.
func (d *DataPlane) writeMembers(frontend uint32, ms []member) error {
	if len(ms) == 0 {
		return nil
	}
	keys, values := make([]bpf.BalancerMemberKey, len(ms)), make([]bpf.BalancerMember, len(ms))
	for i, m := range ms {
		keys[i], values[i] = bpf.BalancerMemberKey{Frontend: frontend, Server: m.id}, m.entry()
	}
	_, err := d.kernel.Members.BatchUpdate(keys, values, nil)
	if errors.Is(err, unix.E2BIG) {
		return errMembers(d.kernel.Members)
	}
	if err != nil {
		return fmt.Errorf("write backends: %w", err)
	}
	return nil
}

func errMembers(m *ebpf.Map) error {
	return fmt.Errorf("all frontends together have more than %d backends (MaxMembers)", m.MaxEntries())
}

// deleteMembers removes what writeMembers stored.
func (d *DataPlane) deleteMembers(frontend uint32, servers []uint32) error {
	keys := make([]bpf.BalancerMemberKey, len(servers))
	for i, id := range servers {
		keys[i] = bpf.BalancerMemberKey{Frontend: frontend, Server: id}
	}
	for len(keys) > 0 {
		n, err := d.kernel.Members.BatchDelete(keys, nil)
		d.memberCount -= n
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove backends: %w", err)
		}
		if err == nil {
			break
		}
		keys = keys[min(n+1, len(keys)):] // an absent one ends the batch
	}
	return nil
}
