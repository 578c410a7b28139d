package xdp

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/service"
)

// Upsert implements dataplane.DataPlane. Traffic sees the change in one step:
//
//  1. new servers are written, which no ring names yet;
//  2. the new ring is written, beside the old one;
//  3. the one step: the new ring takes the old one's place, or, where the
//     method, the scheduler or the ring's size change, the frontend's own entry
//     is replaced by one that names the new ring;
//  4. what else is sent to the VIP is taken, weights are noted, and servers
//     that are gone are freed.
//
// A failure up to the third step is undone; after it the frontend serves as
// asked, and what is left to clear away is cleared by the next call.
func (d *DataPlane) Upsert(f dataplane.Frontend) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f); err != nil {
		return err
	}
	if err := d.heal(f.Key); err != nil {
		return err
	}
	c, err := d.prepare(f)
	if err == nil {
		err = d.commit(c)
	}
	if err != nil {
		d.stale = true
		return errors.Join(fmt.Errorf("%s: %w", f.Key, err), d.undo(c))
	}
	if err := d.settle(c); err != nil {
		d.stale = true
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	return nil
}

// heal reads the kernel anew after a failure, and where it does not hold the
// frontend as this process remembers it.
func (d *DataPlane) heal(k service.Key) error {
	if !d.stale {
		k.VIP = k.VIP.Unmap()
		var now balancerFrontend
		err := d.kernel.Frontends.Lookup(toKey(k), &now)
		h := d.held[k]
		switch {
		case err == nil && h != nil:
			now.Turn = h.value.Turn
			d.stale = now != h.value
		case errors.Is(err, ebpf.ErrKeyNotExist):
			d.stale = h != nil
		case err == nil:
			d.stale = true
		default:
			return fmt.Errorf("%s: read frontend: %w", k, err)
		}
	}
	if !d.stale {
		return nil
	}
	return d.readLocked()
}

// check refuses what the program cannot do.
func (d *DataPlane) check(f dataplane.Frontend) error {
	if _, ok := methods[f.Method]; !ok {
		return dataplane.Unsupported(f.Key, fmt.Sprintf("method %q", f.Method))
	}
	if _, ok := schedulers[f.Scheduler]; !ok {
		return dataplane.Unsupported(f.Key, fmt.Sprintf("scheduler %q", f.Scheduler))
	}
	if f.Protocol != service.TCP && f.Protocol != service.UDP {
		return dataplane.Unsupported(f.Key, "a protocol other than TCP and UDP")
	}
	if len(f.Backends) == 0 {
		return fmt.Errorf("%s: no backends: delete a frontend that has none", f.Key)
	}
	if f.RingSize < 0 || f.RingSize > math.MaxInt32 {
		return fmt.Errorf("%s: ring size %d", f.Key, f.RingSize)
	}
	v4 := f.Backends[0].Addr.Addr().Unmap().Is4()
	for _, b := range f.Backends {
		if b.Addr.Addr().Unmap().Is4() != v4 {
			return dataplane.Unsupported(f.Key, "backends of both families")
		}
	}
	if f.Method != service.Tunnel && f.VIP.Unmap().Is4() != v4 {
		return dataplane.Unsupported(f.Key, fmt.Sprintf("%s to backends of another family than the VIP's", f.Method))
	}
	source, field := d.config.SourceV4, "SourceV4"
	if !v4 {
		source, field = d.config.SourceV6, "SourceV6"
	}
	if f.Method != service.DirectNAT && !source.IsValid() {
		return dataplane.Unsupported(f.Key, fmt.Sprintf("%s to %s without an own address (%s)", f.Method, f.Backends[0].Addr, field))
	}
	return nil
}

// change is an Upsert on its way.
type change struct {
	before *held // nil for a new frontend
	after  *held
	fresh  []server // in after, not in before
	slots  []ring.Slot
	inner  *ebpf.Map // the new ring; nil where it stays or there is none
}

// prepare does everything that traffic does not see.
func (d *DataPlane) prepare(f dataplane.Frontend) (*change, error) {
	k := service.Key{VIP: f.VIP.Unmap(), Port: f.Port, Protocol: f.Protocol}
	c := &change{before: d.held[k], after: &held{key: k, servers: map[netip.AddrPort]server{}}}
	if err := d.number(c, f); err != nil {
		return c, err
	}
	prev, err := d.readRing(c.before)
	if err != nil {
		return c, err
	}
	if c.slots, err = nextRing(prev, f, c.after.servers); err != nil {
		return c, err
	}
	v := &c.after.value
	v.Method, v.Scheduler = methods[f.Method], schedulers[f.Scheduler]
	v.RingSize, v.Slots = uint32(f.RingSize), uint32(len(c.slots))
	if err := d.placeRing(c, prev); err != nil {
		return c, err
	}
	return c, d.writeServers(c.fresh)
}

// number gives the frontend and its new servers their ids.
func (d *DataPlane) number(c *change, f dataplane.Frontend) (err error) {
	known := map[netip.AddrPort]server{}
	if c.before != nil {
		c.after.value.Id, known = c.before.value.Id, c.before.servers
	} else if c.after.value.Id, err = d.ids.frontends.take(); err != nil {
		return err
	} else if err := zeroCounts(d.kernel.FrontendCounts, c.after.value.Id); err != nil {
		return err
	}
	for _, b := range f.Backends {
		addr := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port())
		s, ok := known[addr]
		if !ok {
			if s, err = d.newServer(addr, c.after.value.Id); err != nil {
				return err
			}
		}
		s.Weight = b.Weight
		c.after.servers[addr] = s
		if !ok {
			c.fresh = append(c.fresh, s)
		}
	}
	return nil
}

// newServer takes a number; what its last owner left is voided.
func (d *DataPlane) newServer(addr netip.AddrPort, frontend uint32) (server, error) {
	id, err := d.ids.servers.take()
	if err != nil {
		return server{}, err
	}
	var last balancerServer
	if err := d.kernel.Servers.Lookup(id, &last); err != nil {
		return server{}, fmt.Errorf("read backend %d: %w", id, err)
	}
	if err := zeroCounts(d.kernel.ServerCounts, id); err != nil {
		return server{}, err
	}
	return server{id, balancerServer{
		Addr: toAddr(addr.Addr()), Port: netorder.Port(addr.Port()), Frontend: frontend,
		Generation: last.Generation + 1, Used: 1,
	}}, nil
}

func (d *DataPlane) writeServers(servers []server) error {
	for _, s := range servers {
		if err := d.kernel.Servers.Put(s.id, s.balancerServer); err != nil {
			return fmt.Errorf("write backend %s: %w", serverAddr(s.balancerServer), err)
		}
	}
	return nil
}

// nextRing asks for the ring that follows prev.
func nextRing(prev []ring.Slot, f dataplane.Frontend, servers map[netip.AddrPort]server) ([]ring.Slot, error) {
	var members []ring.Member
	for addr, s := range servers {
		members = append(members, ring.Member{ID: s.id, Addr: addr, Weight: s.Weight})
	}
	slices.SortFunc(members, func(a, b ring.Member) int { return a.Addr.Compare(b.Addr) })
	if f.Scheduler == service.RoundRobin {
		return ring.RoundRobin(members), nil
	}
	return ring.Maglev(prev, f.RingSize, members)
}

// readRing reads a frontend's ring from the kernel.
func (d *DataPlane) readRing(h *held) ([]ring.Slot, error) {
	if h == nil || h.value.Slots == 0 {
		return nil, nil
	}
	var inner *ebpf.Map
	err := d.kernel.Rings.Lookup(h.value.Ring, &inner)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	defer inner.Close()
	values := make([]balancerRingSlot, h.value.Slots)
	n, err := readArray(inner, values)
	if err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	slots := make([]ring.Slot, n)
	for i, v := range values[:n] {
		slots[i] = ring.Slot{First: v.First, Second: v.Second}
	}
	return slots, nil
}

// placeRing says which place of rings the frontend has and writes the new ring,
// if there is to be one.
func (d *DataPlane) placeRing(c *change, prev []ring.Slot) (err error) {
	if c.inPlace() {
		c.after.value.Ring = c.before.value.Ring
		if slices.Equal(c.slots, prev) {
			return nil
		}
	} else if len(c.slots) == 0 {
		return nil
	} else if c.after.value.Ring, err = d.ids.rings.take(); err != nil {
		return err
	}
	c.inner, err = d.newRing(c.slots)
	return err
}

// inPlace says that the new ring can take the old one's place, because nothing
// else about the frontend changes.
func (c *change) inPlace() bool {
	if c.before == nil || len(c.slots) == 0 {
		return false
	}
	b, a := c.before.value, c.after.value
	return b.Method == a.Method && b.Scheduler == a.Scheduler && b.RingSize == a.RingSize && b.Slots == a.Slots
}

// newRing makes a ring that no frontend has yet.
func (d *DataPlane) newRing(slots []ring.Slot) (*ebpf.Map, error) {
	spec := d.ring.Copy()
	spec.Name = "ring"
	spec.MaxEntries = uint32(len(slots))
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("make ring of %d slots: %w", len(slots), err)
	}
	keys := make([]uint32, len(slots))
	values := make([]balancerRingSlot, len(slots))
	for i, s := range slots {
		keys[i] = uint32(i)
		values[i] = balancerRingSlot{First: s.First, Second: s.Second}
	}
	if _, err := m.BatchUpdate(keys, values, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("fill ring of %d slots: %w", len(slots), err), m.Close())
	}
	return m, nil
}

// commit makes traffic see the change.
func (d *DataPlane) commit(c *change) error {
	if c.inner != nil {
		if err := d.kernel.Rings.Put(c.after.value.Ring, c.inner); err != nil {
			return fmt.Errorf("put ring in place: %w", err)
		}
	}
	if c.inPlace() {
		return nil
	}
	key := toKey(c.after.key)
	var now balancerFrontend
	if err := d.kernel.Frontends.Lookup(key, &now); err == nil {
		c.after.value.Turn = now.Turn
	}
	if err := d.kernel.Frontends.Put(key, c.after.value); err != nil {
		return fmt.Errorf("write frontend: %w", err)
	}
	return nil
}

// await returns when no packet is on its way any more that began before the
// commit. The kernel waits so after a change to a map of maps, so the ring is
// put where it already is (kernel/bpf/syscall.c, maybe_wait_bpf_programs).
func (d *DataPlane) await(c *change) error {
	if c.inner == nil || c.inPlace() {
		return nil
	}
	return d.kernel.Rings.Put(c.after.value.Ring, c.inner)
}

// undo takes back what prepare did. What it cannot take back is found by the
// next reading.
func (d *DataPlane) undo(c *change) error {
	var errs []error
	for _, s := range c.fresh {
		errs = append(errs, d.freeServer(s))
	}
	if c.inner != nil {
		errs = append(errs, c.inner.Close())
	}
	return errors.Join(errs...)
}

// settle notes what traffic already sees, and clears away what it does not see
// any more.
func (d *DataPlane) settle(c *change) error {
	if c.inner != nil {
		defer c.inner.Close()
	}
	after := make([]server, 0, len(c.after.servers))
	for addr, s := range c.after.servers {
		s.Held = 1
		c.after.servers[addr] = s
		after = append(after, s)
	}
	if err := d.writeServers(after); err != nil {
		return err
	}
	d.held[c.after.key] = c.after
	if err := d.holdVIP(c.after.key.VIP); err != nil {
		return err
	}
	if c.before == nil {
		return nil
	}
	if err := d.await(c); err != nil {
		return err
	}
	return d.clear(c)
}

// clear frees what only the frontend of before has.
func (d *DataPlane) clear(c *change) error {
	b, a := c.before.value, c.after.value
	if b.Slots > 0 && (a.Slots == 0 || b.Ring != a.Ring) {
		if err := d.freeRing(b.Ring); err != nil {
			return err
		}
	}
	for addr, s := range c.before.servers {
		if _, stays := c.after.servers[addr]; stays {
			continue
		}
		if err := d.freeServer(s); err != nil {
			return err
		}
		d.ids.servers.giveBack(s.id)
	}
	return nil
}

func (d *DataPlane) freeRing(index uint32) error {
	if err := d.kernel.Rings.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove ring: %w", err)
	}
	d.ids.rings.giveBack(index)
	return nil
}

// Delete implements dataplane.DataPlane.
func (d *DataPlane) Delete(k service.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.heal(k); err != nil {
		return err
	}
	k.VIP = k.VIP.Unmap()
	h := d.held[k]
	if h == nil {
		return nil
	}
	if err := d.remove(h); err != nil {
		d.stale = true
		return fmt.Errorf("%s: %w", k, err)
	}
	return nil
}

// remove takes the frontend's entry first, so that what it names is no longer
// used when it goes.
func (d *DataPlane) remove(h *held) error {
	if err := d.kernel.Frontends.Delete(toKey(h.key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	delete(d.held, h.key)
	if err := d.releaseVIP(h.key.VIP); err != nil {
		return err
	}
	if h.value.Slots > 0 {
		if err := d.freeRing(h.value.Ring); err != nil {
			return err
		}
	}
	for _, s := range h.servers {
		if err := d.freeServer(s); err != nil {
			return err
		}
		d.ids.servers.giveBack(s.id)
	}
	d.ids.frontends.giveBack(h.value.Id)
	return nil
}
