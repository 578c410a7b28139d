// Package layout2 reads what releases with layout 2 of the pinned maps left, so that
// dataplane/xdp writes it again in its own layout. Layout 2 had a map for each ring, one older
// server per slot, and separate entries for every backend of every frontend. Its tracked flows
// (fullnat, rr) are lost. The package writes nothing, and does not grow: the layout is history.
// Its tests, with a program of that time, are in dataplane/xdp.
package layout2

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/netorder"
)

// Folder is the name of its pin directory.
const Folder = "balancer-v2"

// The types of its maps, as far as needed.
type (
	// Frontend is an entry of frontends.
	Frontend struct {
		ID, Ring, Slots, RingSize uint32
		Method, Scheduler         uint32 // as now
		Turn                      uint32
	}
	// Server is an element of servers.
	Server struct {
		Addr       bpf.BalancerAddr
		Frontend   uint32 // its id
		Weight     uint32
		Generation uint32
		Port       uint16
		Used, Held uint8
	}
	// Slot is an element of a ring.
	Slot struct{ First, Second uint32 }
)

// State is the state of layout 2.
type State struct {
	maps    map[string]*ebpf.Map
	servers []Server
	entries map[service.Key]Frontend
}

// Open opens the maps in a pin directory.
func Open(pins *bpffs.Dir) (*State, error) {
	t := &State{maps: map[string]*ebpf.Map{}, entries: map[service.Key]Frontend{}}
	for _, name := range []string{"frontends", "servers", "rings"} {
		m, err := ebpf.LoadPinnedMap(pins.Path(name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.maps[name] = m
	}
	t.servers = make([]Server, t.maps["servers"].MaxEntries())
	n, err := bpf.ReadArray(t.maps["servers"], t.servers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read backends: %w", err), t.Close())
	}
	t.servers = t.servers[:n]
	return t, nil
}

// Close closes them.
func (t *State) Close() error {
	var errs []error
	for _, m := range t.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// List returns the frontends.
func (t *State) List() (all []desired.Frontend, err error) {
	err = bpf.ReadHash(t.maps["frontends"], func(k bpf.BalancerFrontendKey, v Frontend) {
		if v.Method == uint32(bpf.BalancerMethodMETHOD_NONE) {
			return
		}
		f := t.frontend(entry.FromKey(k), v)
		if len(f.Backends) > 0 { // else its first change was interrupted
			all = append(all, f)
			t.entries[f.Key] = v
		}
	})
	return all, err
}

// frontend returns a frontend as it was given.
func (t *State) frontend(k service.Key, v Frontend) desired.Frontend {
	f := desired.Frontend{
		Key: k, Method: entry.Method(bpf.BalancerMethod(v.Method)), Scheduler: entry.Scheduler(bpf.BalancerScheduler(v.Scheduler)),
		RingSize: int(v.RingSize), Survival: service.SecondChance,
	}
	if f.Method == service.Tunnel {
		f.Encapsulation = service.IPIP
	}
	for _, s := range t.servers {
		if s.Used != 0 && s.Frontend == v.ID {
			f.Backends = append(f.Backends, service.Backend{Addr: s.address(), Weight: s.Weight})
		}
	}
	slices.SortFunc(f.Backends, service.Backend.Compare)
	return f
}

func (s Server) address() netip.AddrPort {
	return netip.AddrPortFrom(entry.FromAddr(s.Addr), netorder.Port(s.Port))
}

// Ring returns the ring of a listed frontend: each slot's backend, and then the older one.
func (t *State) Ring(k service.Key) ([][1 + ring.Depth]netip.AddrPort, error) {
	v := t.entries[k]
	if v.Slots == 0 {
		return nil, nil
	}
	var inner *ebpf.Map
	if err := t.maps["rings"].Lookup(v.Ring, &inner); err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	defer inner.Close()
	slots := make([]Slot, v.Slots)
	n, err := bpf.ReadArray(inner, slots)
	if err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	all := make([][1 + ring.Depth]netip.AddrPort, n)
	for i, s := range slots[:n] {
		for j, id := range []uint32{s.First, s.Second} {
			if id != 0 && int(id) < len(t.servers) {
				all[i][j] = t.servers[id].address()
			}
		}
	}
	return all, nil
}
