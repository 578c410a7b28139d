package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
)

// programmed is a frontend as programmed in the maps.
type programmed struct {
	key     service.Key
	value   bpf.BalancerFrontend
	members members
	ours    bool // this process made its ring, from these members
}

// guarded reports whether the program checks the frontend's clients.
func (h *programmed) guarded() bool {
	return h != nil && h.value.Flags&bpf.BalancerFrontendFlagsFRONTEND_GUARDED != 0
}

func (h *programmed) ring() ringmap.Ring {
	return ringmap.Ring{Entry: h.value, Protocol: h.key.Protocol}
}

// read makes the kernel's maps the source of truth: it reads what is programmed and which
// numbers are in use, and removes unreferenced entries, which an interrupted call may
// have left.
func (d *DataPlane) read() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.readLocked()
}

func (d *DataPlane) readLocked() error {
	wholes, err := d.readHeld()
	if err != nil {
		return err
	}
	if err := d.repairVIPs(d.programmed, wholes); err != nil {
		return err
	}
	if err := d.recountUses(d.programmed); err != nil {
		return err
	}
	if err := d.lists.SyncMirror(); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	d.stale = false
	return nil
}

// readHeld reads the frontends, and returns the entries of whole addresses.
func (d *DataPlane) readHeld() (map[netip.Addr]bpf.BalancerFrontend, error) {
	if err := errors.Join(d.rings.Open(), d.lists.Open()); err != nil {
		return nil, err
	}
	frontends, wholes, err := d.readFrontends()
	if err != nil {
		return nil, err
	}
	d.ids = alloc.NewPool("frontends (MaxFrontends, --max-frontends)", 0, d.kernel.FrontendCounts.MaxEntries(), d.grace)
	for _, h := range frontends {
		d.ids.Mark(h.value.Id)
		if !d.rings.Mark(h.ring()) {
			h.value.Slot, h.value.Slots = 0, 0 // the ring is missing: the next Upsert makes another
		}
	}
	if d.servers, err = d.readServers(); err != nil {
		return nil, err
	}
	if err := d.repairMembers(frontends); err != nil {
		return nil, err
	}
	d.programmed = frontends
	all := make([]ringmap.Ring, 0, len(frontends))
	for _, h := range frontends {
		all = append(all, h.ring())
	}
	return wholes, d.rings.Learn(all, d.servers.shared)
}

// readFrontends reads the frontends, without members yet, and the entries of whole
// addresses.
func (d *DataPlane) readFrontends() (map[service.Key]*programmed, map[netip.Addr]bpf.BalancerFrontend, error) {
	all, wholes := map[service.Key]*programmed{}, map[netip.Addr]bpf.BalancerFrontend{}
	add := func(k service.Key, v bpf.BalancerFrontend) {
		v.Ranges, v.Range = 0, 0
		if v.Method != bpf.BalancerMethodMETHOD_NONE {
			all[k] = &programmed{key: k, value: v}
		}
	}
	err := bpf.ReadHash(d.kernel.Frontends, func(key bpf.BalancerFrontendKey, v bpf.BalancerFrontend) {
		k := entry.FromKey(key)
		if k.Whole() {
			wholes[k.VIP] = v
		}
		add(k, v)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("xdp: read frontends: %w", err)
	}
	for addr, whole := range wholes {
		for i := range whole.Ranges {
			var r bpf.BalancerPortRange
			if err := d.kernel.PortRanges.Lookup(whole.Range+i, &r); err != nil {
				return nil, nil, fmt.Errorf("xdp: read port ranges of %s: %w", addr, err)
			}
			add(service.Key{VIP: addr, Port: r.First, Last: r.Last, Protocol: service.Protocol(r.Proto)}, r.F)
		}
	}
	return all, wholes, nil
}

// repairMembers assigns members to the frontends, and frees the servers that no frontend
// has.
func (d *DataPlane) repairMembers(frontends map[service.Key]*programmed) error {
	byID := map[uint32]*programmed{}
	for _, h := range frontends {
		byID[h.value.Id] = h
	}
	for id, of := range d.lists.All() {
		h := byID[id]
		if h == nil {
			if err := d.writeMembers(id, nil); err != nil {
				return fmt.Errorf("xdp: %w", err)
			}
			continue
		}
		for _, e := range of {
			s := d.servers.byID[e.Server]
			// Those of another kind are from an interrupted change.
			if s == nil || s.key.owner != ownerOf(h.value) {
				continue
			}
			s.members++
			h.members = append(h.members, member{
				server: s, weight: e.Weight, maxConns: e.MaxConns, since: int64(e.Since), programmed: e.Held != 0,
			})
		}
	}
	for _, h := range frontends {
		slices.SortFunc(h.members, func(a, b member) int { return a.key.addr.Compare(b.key.addr) })
		if err := d.writeMembers(h.value.Id, h.members); err != nil { // in this order, to be shared
			return fmt.Errorf("xdp: %w", err)
		}
	}
	return d.repairServers()
}

// repairServers sorts out the servers that frontends have.
func (d *DataPlane) repairServers() error {
	t := &d.servers
	for id, s := range t.byID {
		if s.members > 0 {
			t.numbers.Mark(id)
			t.byKey[s.key] = s
			continue
		}
		delete(t.byID, id)
		if err := d.endServer(s); err != nil {
			return fmt.Errorf("xdp: %w", err)
		}
	}
	return nil
}

// List implements dataplane.DataPlane. It reads the kernel, not this process's memory.
func (d *DataPlane) List() ([]desired.Frontend, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	frontends, _, err := d.readFrontends()
	if err != nil {
		return nil, err
	}
	servers, err := d.readServers()
	if err != nil {
		return nil, err
	}
	list := make([]desired.Frontend, 0, len(frontends))
	for k, h := range frontends {
		f, err := d.requested(h)
		if err != nil {
			return nil, fmt.Errorf("xdp: %s: %w", k, err)
		}
		f.Backends = d.readBackends(h.value.Id, &servers)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b desired.Frontend) int { return a.Key.Compare(b.Key) })
	return list, nil
}

// requested returns the input of a programmed frontend, except backends.
func (d *DataPlane) requested(h *programmed) (desired.Frontend, error) {
	f := entry.Requested(h.value)
	f.Key = h.key
	if h.guarded() {
		g, err := d.guard.Read(h.value.Id)
		if err != nil {
			return f, err
		}
		f.Allow, f.Deny, f.Limits = g.Allow, g.Deny, g.Limits
	}
	return f, nil
}
