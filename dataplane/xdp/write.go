package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/guard"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
)

// Upsert implements dataplane.DataPlane. A change passes through these steps once:
//
//  1. validate;
//  2. layOut: find numbers, only in this process's memory;
//  3. diff: compare with what is programmed, and lay out the ring;
//  4. write: write what no packet can see yet: new servers and chains, a ring in a
//     different place than the old one;
//  5. commit: traffic sees the change. If only the ring changes, its slots are written
//     in place, each with one store; else the frontend's entry is replaced, which
//     refers to the new ring;
//  6. finish: store weights, and release what only the old one had. It rests until no
//     packet in flight can still refer to it.
//
// A failure before commit leaves the frontend unchanged. After it, the frontend is served
// as desired. Leftovers in the kernel are removed by the next call, which reads it again.
func (d *DataPlane) Upsert(f desired.Frontend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.upsert(f, nil)
}

// upsert is Upsert. past, if set, is the ring from which this one is derived.
func (d *DataPlane) upsert(f desired.Frontend, past ringmap.AddressRing) error {
	if err := d.validate(f); err != nil {
		return err
	}
	f.VIP = f.VIP.Unmap()
	if err := d.heal(f.Key); err != nil {
		return err
	}
	c, err := d.plan(f, past)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	return d.apply(c)
}

// Delete implements dataplane.DataPlane. It has no steps before commit.
func (d *DataPlane) Delete(k service.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k.VIP = k.VIP.Unmap()
	if err := d.heal(k); err != nil {
		return err
	}
	if h := d.programmed[k]; h != nil {
		return d.apply(&change{before: h, after: &programmed{key: k}, removes: true, ring: d.rings.Remove(h.ring())})
	}
	return nil
}

// Reserve implements dataplane.Reserver. Rings of schedulers that do not hash are small.
func (d *DataPlane) Reserve(frontends []desired.Frontend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rings []ringmap.Request
	for _, f := range frontends {
		if d.programmed[f.Key] != nil || d.check(f) != nil {
			continue
		}
		if v := entry.Of(f); entry.HasHistory(v) {
			rings = append(rings, ringmap.Request{Ring: ringmap.Ring{Entry: v, Protocol: f.Key.Protocol}, Members: ringmap.Unnumbered(f.Backends)})
		}
	}
	return d.rings.Reserve(rings)
}

// validate rejects what the program does not support, and prepares it for the rest.
func (d *DataPlane) validate(f desired.Frontend) error {
	if err := d.check(f); err != nil || f.Protection() != service.SYNAlways {
		return err
	}
	if err := d.prepareSYN(); err != nil {
		return fmt.Errorf("%s: SYN protection: %w", f.Key, err)
	}
	return nil
}

// check rejects configuration that the program does not support.
func (d *DataPlane) check(f desired.Frontend) error {
	if len(f.Backends) == 0 {
		return fmt.Errorf("%s: no backends: delete a frontend that has none", f.Key)
	}
	if f.RingSize < 0 || f.RingSize > d.rings.MaxSlots() {
		return fmt.Errorf("%s: ring size %d: want at most %d", f.Key, f.RingSize, d.rings.MaxSlots())
	}
	if what := entry.Unsupported(f, d.config.SourceV4, d.config.SourceV6); what != "" {
		return dataplane.Unsupported(f.Key, what)
	}
	return nil
}

// heal reads the kernel again after a failure, and if it does not have the frontend as
// this process remembers it.
func (d *DataPlane) heal(k service.Key) error {
	if !d.stale {
		same, err := d.sameInKernel(k, d.programmed[k])
		if err != nil {
			return fmt.Errorf("%s: read frontend: %w", k, err)
		}
		d.stale = !same
	}
	if !d.stale {
		return nil
	}
	return d.readLocked()
}

// sameInKernel reports whether the kernel has exactly this frontend and its ring.
func (d *DataPlane) sameInKernel(k service.Key, h *programmed) (bool, error) {
	now, err := d.entryInKernel(k, h)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return h == nil, nil
	}
	if err != nil || h == nil {
		return false, err
	}
	if now.Turn, now.Ranges, now.Range = h.value.Turn, 0, 0; now != h.value {
		return false, nil
	}
	return d.rings.InKernel(h.ring())
}

// entryInKernel reads a frontend's entry. An unknown range is in none.
func (d *DataPlane) entryInKernel(k service.Key, h *programmed) (now bpf.BalancerFrontend, err error) {
	if h == nil && k.Range() {
		return now, ebpf.ErrKeyNotExist
	}
	err = d.kernel.Frontends.Lookup(entry.ToKey(k), &now)
	if err != nil || !k.Range() || k.Whole() {
		return now, err
	}
	at := slices.Index(d.vips[k.VIP].ranges, h)
	if at < 0 || uint32(at) >= now.Ranges {
		return now, ebpf.ErrKeyNotExist
	}
	var r bpf.BalancerPortRange
	if err := d.kernel.PortRanges.Lookup(now.Range+uint32(at), &r); err != nil {
		return now, err
	}
	if r.First != k.Port || r.Last != k.Last || r.Proto != uint8(k.Protocol) {
		return now, ebpf.ErrKeyNotExist
	}
	return r.F, nil
}

// change is the difference between two states of a frontend. The steps after diff only
// carry it out.
type change struct {
	before     *programmed // nil for a new frontend
	after      *programmed
	removes    bool     // after has only a key
	entryStays bool     // nothing but members and the ring changes
	fresh      []member // members that the frontend did not have before
	rules      guard.Rules
	ring       ringmap.Plan
}

// plan computes a change. After an error nothing is taken or written.
func (d *DataPlane) plan(f desired.Frontend, past ringmap.AddressRing) (*change, error) {
	before := d.programmed[f.Key]
	after, err := d.layOut(f, before)
	c := diff(before, after)
	c.rules = guard.Rules{Allow: f.Allow, Deny: f.Deny, Limits: f.Limits}
	if err == nil {
		err = d.layRing(c, past)
	}
	if err != nil {
		d.abandon(c)
	}
	return c, err
}

// noID marks a frontend without an id.
const noID = ^uint32(0)

// layOut finds the numbers of a frontend and its servers. After an error it returns what
// it has taken.
func (d *DataPlane) layOut(f desired.Frontend, before *programmed) (after *programmed, err error) {
	after = &programmed{key: f.Key, value: entry.Of(f), members: make(members, 0, len(f.Backends)), ours: true}
	v := &after.value
	if before != nil {
		v.Id, v.Turn = before.value.Id, before.value.Turn
		v.Flags |= entry.KeepPressure(v.Flags, before.value.Flags)
	} else if v.Id, err = d.ids.Take(); err != nil {
		v.Id = noID
		return after, err
	}
	for _, b := range f.Backends {
		addr := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port())
		s, err := d.servers.take(serverKey{addr, ownerOf(*v)})
		if err != nil {
			return after, err
		}
		after.members = append(after.members, memberOf(b, s))
	}
	slices.SortFunc(after.members, func(a, b member) int { return a.key.addr.Compare(b.key.addr) })
	return after, nil
}

// abandon releases the numbers of a failed plan.
func (d *DataPlane) abandon(c *change) {
	if c.before == nil && c.after.value.Id != noID {
		d.ids.GiveBack(c.after.value.Id)
	}
	for _, m := range c.after.members {
		d.servers.release(m.server)
	}
}

// diff compares a frontend with what is programmed.
func diff(before, after *programmed) *change {
	if before == nil {
		return &change{after: after, fresh: after.members}
	}
	c := &change{before: before, after: after, entryStays: before.ring().Locate(after.value) == before.value}
	for _, m := range after.members {
		if old := before.members.find(m.key.addr); old == nil || old.id != m.id {
			c.fresh = append(c.fresh, m)
		}
	}
	return c
}

// layRing lays out the ring of a change, if there is room for its members, too: after a
// failed write the kernel is read again.
func (d *DataPlane) layRing(c *change, past ringmap.AddressRing) (err error) {
	if !d.lists.Fits(len(c.fresh)) {
		return fmt.Errorf("all frontends together have more than %d backends (MaxMembers)", d.config.MaxMembers)
	}
	q := d.ringRequest(c)
	q.Past = past
	if c.ring, err = d.rings.Lay(q, &d.scratch); err == nil {
		c.after.value = c.ring.Entry
	}
	return err
}

// ringRequest describes the ring of a change, until it is called again.
func (d *DataPlane) ringRequest(c *change) ringmap.Request {
	q := ringmap.Request{Ring: c.after.ring(), EntryStays: c.entryStays}
	d.ringMembers[0] = c.after.members.appendRing(d.ringMembers[0][:0])
	if q.Members = d.ringMembers[0]; c.before != nil {
		d.ringMembers[1] = c.before.members.appendRing(d.ringMembers[1][:0])
		q.Before = ringmap.Existing{Ring: c.before.ring(), Members: d.ringMembers[1], Made: c.before.ours}
	}
	return q
}

// apply carries out a change.
func (d *DataPlane) apply(c *change) error {
	for _, step := range []func(*change) error{d.write, d.commit, d.finish} {
		if err := step(c); err != nil {
			d.stale = true
			return fmt.Errorf("%s: %w", c.after.key, err)
		}
	}
	return nil
}

// write writes what no packet can see yet.
func (d *DataPlane) write(c *change) error {
	if c.removes {
		return nil
	}
	id := c.after.value.Id
	if c.before == nil {
		if err := errors.Join(bpf.ZeroCPUs(d.kernel.FrontendCounts, id),
			bpf.ZeroCPUs(d.kernel.SynCounts, id)); err != nil {
			return err
		}
		for _, m := range c.after.members {
			m.setServer()
		}
	}
	if !c.before.guarded() {
		if err := d.guard.Write(id, c.rules); err != nil {
			return err
		}
	}
	if err := d.writeNew(c.after.members); err != nil {
		return err
	}
	if err := c.ring.Write(d.servers.addrOf); err != nil {
		return err
	}
	if err := d.writeFresh(c); err != nil {
		return err
	}
	d.admitNAT(c.after)
	return nil
}

// commit makes traffic see the change.
func (d *DataPlane) commit(c *change) error {
	k := c.after.key
	before := d.vips[k.VIP]
	if before == nil {
		before = &vip{}
	}
	after := before.without(k)
	if !c.removes {
		after = before.with(c.after, c.before == nil)
	}
	if c.ring.InPlace() {
		d.vips[k.VIP] = after
		c.ring.Commit()
		return nil
	}
	if err := d.commitEntry(c); err != nil {
		return err
	}
	switch {
	case after.empty():
		return d.dropVIP(k.VIP, before)
	case k.Range() || before.empty():
		return d.putVIP(k.VIP, before, after)
	}
	d.vips[k.VIP] = after
	return nil
}

// commitEntry writes or deletes the entry of a frontend that has its own. After the
// deletion nothing refers to the rest.
func (d *DataPlane) commitEntry(c *change) error {
	k := entry.ToKey(c.after.key)
	if err := d.setUses(d.uses.add(c.after, 1)); err != nil || c.after.key.Range() {
		return err
	}
	if c.removes {
		return bpf.IgnoreAbsent(d.kernel.Frontends.Delete(k))
	}
	c.after.value.Turn = d.turnOf(c.after.key)
	if err := d.kernel.Frontends.Put(k, c.after.value); err != nil {
		return fmt.Errorf("write frontend: %w", err)
	}
	return nil
}

// finish records what traffic already sees, and releases what it no longer sees.
func (d *DataPlane) finish(c *change) error {
	if d.programmed[c.after.key] = c.after; c.removes {
		delete(d.programmed, c.after.key)
	}
	if c.before == nil {
		return nil
	}
	if c.before.guarded() { // after a removal without rules
		if err := d.guard.Write(c.before.value.Id, c.rules); err != nil {
			return err
		}
	}
	if err := d.finishMembers(c); err != nil {
		return err
	}
	if c.ring.Finish(); !c.ring.InPlace() {
		if err := d.setUses(d.uses.add(c.before, -1)); err != nil {
			return err
		}
	}
	if c.removes {
		d.ids.GiveBack(c.before.value.Id)
	}
	return d.releaseMembers(c.before)
}

// finishMembers stores the members as they are after the change.
func (d *DataPlane) finishMembers(c *change) error {
	for i := range c.after.members {
		m := &c.after.members[i]
		m.programmed = true
		if m.key.owner != 0 && m.setServer() {
			if err := d.writeServer(m.server); err != nil {
				return err
			}
		}
	}
	return d.writeMembers(c.before.value.Id, c.after.members)
}

// releaseMembers ends the servers of a frontend that no other frontend has.
func (d *DataPlane) releaseMembers(h *programmed) error {
	for _, m := range h.members {
		if d.servers.release(m.server) {
			if err := d.endServer(m.server); err != nil {
				return err
			}
		}
	}
	return nil
}

// grace waits until all packets that were in flight are done, and wakes everything that
// rests.
func (d *DataPlane) grace() error {
	if err := d.rings.Wait(); err != nil {
		return err
	}
	d.ids.Wake()
	d.servers.numbers.Wake()
	d.ranges.Wake()
	return d.rings.Wake()
}
