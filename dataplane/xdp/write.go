package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/guard"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
)

// Upsert implements dataplane.DataPlane:
//
//  1. plan: find numbers and room, only in this process's memory;
//  2. write: write what no packet can see yet: new servers and chains, a ring in a
//     different place than the old one;
//  3. commit: traffic sees the change. If only the ring changes, its slots are written
//     in place, each with one store; else the frontend's entry is replaced, which
//     refers to the new ring;
//  4. settle: store weights, and release what only the old one had. It rests until no
//     packet in flight can still refer to it.
//
// A failure before the third step leaves the frontend unchanged. After it, the frontend
// is served as desired. Leftovers in the kernel are removed by the next call, which reads
// it again.
func (d *DataPlane) Upsert(f desired.Frontend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.upsert(f, nil)
}

// upsert is Upsert. past, if set, is the ring from which this one is derived.
func (d *DataPlane) upsert(f desired.Frontend, past addressRing) error {
	if err := d.check(f); err != nil {
		return err
	}
	f.VIP = f.VIP.Unmap()
	if f.Protection() == service.SYNAlways {
		if err := d.prepareSYN(); err != nil {
			return fmt.Errorf("%s: SYN protection: %w", f.Key, err)
		}
	}
	if err := d.heal(f.Key); err != nil {
		return err
	}
	c, err := d.plan(f, past)
	if err != nil {
		d.abandon(c)
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	for _, step := range []func(*change) error{d.write, d.commit, d.settle} {
		if err := step(c); err != nil {
			d.stale = true
			return fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	return nil
}

// Reserve implements dataplane.Reserver. Rings of schedulers that do not hash are small.
func (d *DataPlane) Reserve(frontends []desired.Frontend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sizes []uint32
	for _, f := range frontends {
		if d.programmed[f.Key] == nil && d.check(f) == nil && entry.HasHistory(entry.Of(f)) {
			sizes = append(sizes, uint32(f.RingSize))
		}
	}
	return d.rings.Reserve(sizes)
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
	if h == nil {
		if k.Range() {
			return true, nil // an unknown range is in no entry
		}
		var now bpf.BalancerFrontend
		err := d.kernel.Frontends.Lookup(entry.ToKey(k), &now)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return true, nil
		}
		return false, err
	}
	now, err := d.entryInKernel(h)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if now.Turn, now.Ranges, now.Range = h.value.Turn, 0, 0; now != h.value {
		return false, nil
	}
	return d.rings.InKernel(h.ring())
}

// entryInKernel reads a frontend's entry.
func (d *DataPlane) entryInKernel(h *programmed) (now bpf.BalancerFrontend, err error) {
	err = d.kernel.Frontends.Lookup(entry.ToKey(h.key), &now)
	if err != nil || !h.key.Range() || h.key.Whole() {
		return now, err
	}
	at := slices.Index(d.vips[h.key.VIP].ranges, h)
	if at < 0 || uint32(at) >= now.Ranges {
		return now, ebpf.ErrKeyNotExist
	}
	var r bpf.BalancerPortRange
	if err := d.kernel.PortRanges.Lookup(now.Range+uint32(at), &r); err != nil {
		return now, err
	}
	if r.First != h.key.Port || r.Last != h.key.Last || r.Proto != uint8(h.key.Protocol) {
		return now, ebpf.ErrKeyNotExist
	}
	return r.F, nil
}

// change is the state of an Upsert.
type change struct {
	before *programmed // nil for a new frontend
	after  *programmed
	// inPlace reports that the new ring overwrites the old one.
	inPlace bool
	words   []uint64           // the new ring, if it is elsewhere
	changed []ringmap.SlotWord // its changed slots, if in place
	rules   guard.Rules
}

// plan finds numbers and room, and computes the ring.
func (d *DataPlane) plan(f desired.Frontend, past addressRing) (*change, error) {
	c := &change{before: d.programmed[f.Key], after: &programmed{key: f.Key, value: entry.Of(f), ours: true}}
	c.rules = guard.Rules{Allow: f.Allow, Deny: f.Deny, Limits: f.Limits}
	if c.before != nil {
		c.after.value.Flags |= entry.KeepPressure(c.after.value.Flags, c.before.value.Flags)
	}
	if err := d.number(c, f.Backends); err != nil {
		return c, err
	}
	// Before anything is written: after a failed write the kernel is read again.
	if n := d.memberCount + len(c.fresh()); n > int(d.kernel.Members.MaxEntries()) {
		return c, errMembers(d.kernel.Members)
	}
	if past == nil && d.follows(c, uint32(f.RingSize)) {
		var before []ring.Member
		if c.before.ours && d.rings.Lacking() == 0 { // else slots have incomplete chains
			before = c.before.members.ring()
		}
		next, err := d.builder.Next(f.RingSize, c.after.members.ring(), before, true)
		if err != nil {
			return c, err
		}
		c.changed = d.rings.Follow(c.after.ring(), allStay(c.before.members, c.after.members), next)
		return c, nil
	}
	slots, err := d.builder.For(f.Scheduler, d.previous(c, past), f.RingSize, c.after.members.ring(), nil)
	if err != nil {
		return c, err
	}
	err = d.place(c, slots)
	d.builder.Reuse(slots)
	return c, err
}

// follows reports whether the new ring takes the old one's place, is derived from it, and
// uses the same server numbers.
func (d *DataPlane) follows(c *change, slots uint32) bool {
	return c.before != nil && entry.HasHistory(c.after.value) && sameNumbers(c.before.members, c.after.members) && d.staysInPlace(c, slots)
}

// previous returns the ring from which the new one is derived.
func (d *DataPlane) previous(c *change, past addressRing) []ring.Slot {
	switch {
	case past != nil && entry.HasHistory(c.after.value):
		return past.numbered(c.after.members)
	case c.before == nil:
		return nil
	}
	prev := d.rings.Slots(c.before.ring())
	renumber(prev, c.before.members, c.after.members)
	return prev
}

// number assigns the ids of the frontend and its servers.
func (d *DataPlane) number(c *change, backends []service.Backend) (err error) {
	v := &c.after.value
	var known members
	if c.before != nil {
		v.Id, known = c.before.value.Id, c.before.members
	} else if v.Id, err = d.ids.Take(); err != nil {
		v.Id = noID
		return err
	}
	c.after.members = make(members, 0, len(backends))
	for _, b := range backends {
		addr := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port())
		s, err := d.servers.take(serverKey{addr, ownerOf(*v)})
		if err != nil {
			return err
		}
		m := memberOf(b, s)
		if old := known.find(addr); c.before == nil {
			m.programmed = true // of a new frontend
			s.maxConns, s.drains = m.maxConns, m.drains()
		} else if old != nil {
			m.programmed = old.programmed && old.id == m.id && old.weight == m.weight && old.maxConns == m.maxConns && old.since == m.since
		}
		c.after.members = append(c.after.members, m)
	}
	slices.SortFunc(c.after.members, func(a, b member) int { return a.key.addr.Compare(b.key.addr) })
	return nil
}

// staysInPlace reports whether the ring can overwrite the old one, because nothing else
// about the frontend changes, and places it there.
func (d *DataPlane) staysInPlace(c *change, slots uint32) bool {
	v := &c.after.value
	v.Slots = slots
	if c.before == nil || v.Slots != c.before.value.Slots {
		return false
	}
	was := c.before.value
	v.Segment, v.Slot, v.Turn = was.Segment, was.Slot, was.Turn
	c.inPlace = *v == was && d.rings.Words(c.before.ring()) != nil
	return c.inPlace
}

// place finds room for the ring, unless it stays in place.
func (d *DataPlane) place(c *change, slots []ring.Slot) (err error) {
	stays := d.staysInPlace(c, uint32(len(slots)))
	if !stays {
		v := &c.after.value
		if v.Segment, v.Slot, err = d.rings.Take(v.Slots); err != nil {
			return err
		}
	}
	words := d.rings.Lay(c.after.ring(), slots, c.after.members.weights())
	if stays {
		c.changed = d.rings.Differing(c.after.ring(), words)
	} else {
		c.words = words
	}
	return nil
}

// noID marks a frontend without an id.
const noID = ^uint32(0)

// abandon releases what a failed plan has taken.
func (d *DataPlane) abandon(c *change) {
	v := c.after.value
	if c.before == nil && v.Id != noID {
		d.ids.GiveBack(v.Id)
	}
	for _, m := range c.after.members {
		d.servers.release(m.server)
	}
}

// write writes what no packet can see yet.
func (d *DataPlane) write(c *change) error {
	v := c.after.value
	if c.before == nil {
		if err := errors.Join(bpf.ZeroCPUs[bpf.BalancerCounts](d.kernel.FrontendCounts, v.Id),
			bpf.ZeroCPUs[bpf.BalancerSynCounts](d.kernel.SynCounts, v.Id)); err != nil {
			return err
		}
	}
	if !c.before.guarded() {
		if err := d.guard.Write(v.Id, c.rules); err != nil {
			return err
		}
	}
	if err := d.writeFresh(); err != nil {
		return err
	}
	if err := d.rings.WriteChains(d.servers.addrOf); err != nil {
		return err
	}
	fresh := c.fresh()
	if err := d.writeMembers(v.Id, fresh); err != nil {
		return err
	}
	d.memberCount += len(fresh)
	if !c.inPlace {
		d.rings.Put(c.after.ring(), c.words)
	}
	d.admitNAT(c.after)
	return nil
}

// fresh are the members that the frontend did not have before.
func (c *change) fresh() []member {
	if c.before == nil {
		return c.after.members
	}
	return slices.DeleteFunc(slices.Clone(c.after.members), func(m member) bool {
		old := c.before.members.find(m.key.addr)
		return old != nil && old.id == m.id
	})
}

// commit makes traffic see the change.
func (d *DataPlane) commit(c *change) error {
	k := c.after.key
	before := d.vips[k.VIP]
	if c.inPlace {
		d.vips[k.VIP] = before.with(c.after, c.before == nil)
		d.rings.Change(c.after.ring(), c.changed)
		return nil
	}
	if err := d.countNAT(c.after, 1); err != nil {
		return err
	}
	if before == nil {
		before = &vip{}
	}
	if k.Range() {
		return d.putVIP(k.VIP, before, before.with(c.after, c.before == nil))
	}
	c.after.value.Turn = d.turnOf(k)
	if err := d.kernel.Frontends.Put(entry.ToKey(k), c.after.value); err != nil {
		return fmt.Errorf("write frontend: %w", err)
	}
	if c.before != nil {
		return nil
	}
	if before.empty() {
		return d.putVIP(k.VIP, before, before.with(c.after, c.before == nil))
	}
	d.vips[k.VIP] = before.with(c.after, c.before == nil)
	return nil
}

// settle records what traffic already sees, and releases what it no longer sees.
func (d *DataPlane) settle(c *change) error {
	d.programmed[c.after.key] = c.after
	if c.before == nil {
		return nil
	}
	if c.before.guarded() {
		if err := d.guard.Write(c.after.value.Id, c.rules); err != nil {
			return err
		}
	}
	var changed []member
	for i := range c.after.members {
		m := &c.after.members[i]
		if m.programmed {
			continue
		}
		m.programmed = true
		changed = append(changed, *m)
		if m.key.owner != 0 && (m.server.maxConns != m.maxConns || m.server.drains != m.drains()) {
			m.server.maxConns, m.server.drains = m.maxConns, m.drains()
			if err := d.writeServer(m.server); err != nil {
				return err
			}
		}
	}
	if err := d.writeMembers(c.after.value.Id, changed); err != nil {
		return err
	}
	if !c.inPlace {
		d.rings.Release(c.before.ring())
		if err := d.countNAT(c.before, -1); err != nil {
			return err
		}
	}
	return d.releaseMembers(c.before, c.after.members)
}

// releaseMembers removes the servers of a frontend that are not in after, and ends those
// that no other frontend has.
func (d *DataPlane) releaseMembers(h *programmed, after members) error {
	for _, m := range h.members {
		if now := after.find(m.key.addr); now == nil || now.id != m.id {
			if err := d.deleteMember(h.value.Id, m.id); err != nil {
				return err
			}
		}
		if d.servers.release(m.server) {
			if err := d.endServer(m.server); err != nil {
				return err
			}
		}
	}
	return nil
}

// Delete implements dataplane.DataPlane.
func (d *DataPlane) Delete(k service.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k.VIP = k.VIP.Unmap()
	if err := d.heal(k); err != nil {
		return err
	}
	h := d.programmed[k]
	if h == nil {
		return nil
	}
	if err := d.remove(h); err != nil {
		d.stale = true
		return fmt.Errorf("%s: %w", k, err)
	}
	return nil
}

// remove deletes the frontend's entry first, so that nothing refers to the rest when it
// is deleted.
func (d *DataPlane) remove(h *programmed) error {
	before := d.vips[h.key.VIP]
	after := before.without(h.key)
	if !h.key.Range() {
		if err := d.kernel.Frontends.Delete(entry.ToKey(h.key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	delete(d.programmed, h.key)
	switch {
	case after.empty():
		if err := d.dropVIP(h.key.VIP, before); err != nil {
			return err
		}
	case h.key.Range():
		if err := d.putVIP(h.key.VIP, before, after); err != nil {
			return err
		}
	default:
		d.vips[h.key.VIP] = after
	}
	d.rings.Release(h.ring())
	if err := d.countNAT(h, -1); err != nil {
		return err
	}
	if h.guarded() {
		if err := d.guard.Clear(h.value.Id); err != nil {
			return err
		}
	}
	d.ids.GiveBack(h.value.Id)
	return d.releaseMembers(h, nil)
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
