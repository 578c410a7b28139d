package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/service"
)

// held is a frontend as the maps have it.
type held struct {
	key     service.Key
	value   balancerFrontend
	servers map[netip.AddrPort]server
}

// server is an entry of the servers map and its number.
type server struct {
	id uint32
	balancerServer
}

// read makes the kernel's maps the truth: it learns what is held and which
// numbers are in use, and clears away what nothing refers to, as a call that
// was cut short may have left.
func (d *DataPlane) read() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.readLocked()
}

func (d *DataPlane) readLocked() error {
	frontends, vips, err := d.frontends()
	if err != nil {
		return err
	}
	ids := newIDs(d.config)
	byID := map[uint32]*held{}
	rings := map[uint32]bool{}
	for _, h := range frontends {
		ids.frontends.mark(h.value.Id)
		byID[h.value.Id] = h
		if h.value.Slots > 0 {
			ids.rings.mark(h.value.Ring)
			rings[h.value.Ring] = true
		}
	}
	servers, err := d.servers()
	if err != nil {
		return err
	}
	for _, s := range servers {
		h := byID[s.Frontend]
		if h == nil {
			if err := d.freeServer(s); err != nil {
				return err
			}
			continue
		}
		ids.servers.mark(s.id)
		h.servers[serverAddr(s.balancerServer)] = s
	}
	if err := d.clearRings(rings); err != nil {
		return err
	}
	if err := d.mendVIPs(frontends, vips); err != nil {
		return err
	}
	d.held, d.ids, d.stale = frontends, ids, false
	return nil
}

// frontends reads the frontends, with no servers yet, and the VIPs that have an
// entry of their own.
func (d *DataPlane) frontends() (all map[service.Key]*held, vips map[netip.Addr]bool, err error) {
	all, vips = map[service.Key]*held{}, map[netip.Addr]bool{}
	var key balancerFrontendKey
	var value balancerFrontend
	entries := d.kernel.Frontends.Iterate()
	for entries.Next(&key, &value) {
		k := fromKey(key)
		if k == wholeAddress(k.VIP) {
			vips[k.VIP] = true
			continue
		}
		all[k] = &held{key: k, value: value, servers: map[netip.AddrPort]server{}}
	}
	if err := entries.Err(); err != nil {
		return nil, nil, fmt.Errorf("xdp: read frontends: %w", err)
	}
	return all, vips, nil
}

// servers reads the servers in use.
func (d *DataPlane) servers() ([]server, error) {
	values := make([]balancerServer, d.kernel.Servers.MaxEntries())
	n, err := readArray(d.kernel.Servers, values)
	if err != nil {
		return nil, fmt.Errorf("xdp: read servers: %w", err)
	}
	var used []server
	for id, s := range values[:n] {
		if s.Used != 0 {
			used = append(used, server{uint32(id), s})
		}
	}
	return used, nil
}

// readArray fills values from an array map in one go and gives how many there
// are.
func readArray[T any](m *ebpf.Map, values []T) (int, error) {
	keys := make([]uint32, len(values))
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, err
	}
	return n, nil
}

// clearRings removes the rings that are not in use.
func (d *DataPlane) clearRings(used map[uint32]bool) error {
	for i := range d.kernel.Rings.MaxEntries() {
		if used[i] {
			continue
		}
		var id uint32
		err := d.kernel.Rings.Lookup(i, &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		if err == nil {
			err = d.kernel.Rings.Delete(i)
		}
		if err != nil {
			return fmt.Errorf("xdp: clear ring %d: %w", i, err)
		}
	}
	return nil
}

// freeServer makes a number nobody's; the generation stays, for the next
// owner to count on.
func (d *DataPlane) freeServer(s server) error {
	if err := d.kernel.Servers.Put(s.id, balancerServer{Generation: s.Generation}); err != nil {
		return fmt.Errorf("xdp: free backend %s: %w", serverAddr(s.balancerServer), err)
	}
	return nil
}

// List implements dataplane.DataPlane. It reads the kernel, not this process's
// memory.
func (d *DataPlane) List() ([]dataplane.Frontend, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	frontends, _, err := d.frontends()
	if err != nil {
		return nil, err
	}
	servers, err := d.servers()
	if err != nil {
		return nil, err
	}
	byID := map[uint32]*dataplane.Frontend{}
	for _, h := range frontends {
		byID[h.value.Id] = &dataplane.Frontend{
			Key:       h.key,
			Method:    nameOf(methods, h.value.Method),
			Scheduler: nameOf(schedulers, h.value.Scheduler),
			RingSize:  int(h.value.RingSize),
		}
	}
	for _, s := range servers {
		// What is not held yet belongs to a change that did not come about.
		if f := byID[s.Frontend]; f != nil && s.Held != 0 {
			f.Backends = append(f.Backends, service.Backend{Addr: serverAddr(s.balancerServer), Weight: s.Weight})
		}
	}
	var list []dataplane.Frontend
	for _, f := range byID {
		slices.SortFunc(f.Backends, service.Backend.Compare)
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b dataplane.Frontend) int { return a.Key.Compare(b.Key) })
	return list, nil
}
