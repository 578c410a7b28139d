package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/netorder"
)

// Layout 2 had a map for each ring, one older server per slot, and separate entries for
// every backend of every frontend. It is read here once. Then everything is written again
// in the new layout, and its links are updated to the new program. Its tracked flows
// (fullnat, rr) are lost.

// layoutTwo is the name of its pin directory.
const layoutTwo = pinPrefix + "2"

// The types of its maps, as far as needed.
type (
	frontendTwo struct {
		ID, Ring, Slots, RingSize uint32
		Method, Scheduler         uint32 // as now
		Turn                      uint32
	}
	serverTwo struct {
		Addr       bpf.BalancerAddr
		Frontend   uint32 // its id
		Weight     uint32
		Generation uint32
		Port       uint16
		Used, Held uint8
	}
	slotTwo struct{ First, Second uint32 }
)

// two is the state of layout 2.
type two struct {
	maps    map[string]*ebpf.Map
	servers []serverTwo
	entries map[service.Key]frontendTwo
}

func openTwo(pins *bpffs.Dir) (legacy, error) {
	t := &two{maps: map[string]*ebpf.Map{}, entries: map[service.Key]frontendTwo{}}
	for _, name := range []string{"frontends", "servers", "rings"} {
		m, err := ebpf.LoadPinnedMap(pins.Path(name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.maps[name] = m
	}
	t.servers = make([]serverTwo, t.maps["servers"].MaxEntries())
	n, err := bpf.ReadArray(t.maps["servers"], t.servers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read backends: %w", err), t.close())
	}
	t.servers = t.servers[:n]
	return t, nil
}

func (t *two) close() error {
	var errs []error
	for _, m := range t.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

func (t *two) list() (all []desired.Frontend, err error) {
	err = bpf.ReadHash(t.maps["frontends"], func(k bpf.BalancerFrontendKey, v frontendTwo) {
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
func (t *two) frontend(k service.Key, v frontendTwo) desired.Frontend {
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

func (s serverTwo) address() netip.AddrPort {
	return netip.AddrPortFrom(entry.FromAddr(s.Addr), netorder.Port(s.Port))
}

func (t *two) ring(k service.Key) (addressRing, error) {
	v := t.entries[k]
	if v.Slots == 0 {
		return nil, nil
	}
	var inner *ebpf.Map
	if err := t.maps["rings"].Lookup(v.Ring, &inner); err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	defer inner.Close()
	slots := make([]slotTwo, v.Slots)
	n, err := bpf.ReadArray(inner, slots)
	if err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	all := make(addressRing, n)
	for i, s := range slots[:n] {
		for j, id := range []uint32{s.First, s.Second} {
			if id != 0 && int(id) < len(t.servers) {
				all[i][j] = t.servers[id].address()
			}
		}
	}
	return all, nil
}
