package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/bpffs"
	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/service"
)

// Layout 2 had a map for each ring, with one older server a slot, and entries of
// their own for every backend of every frontend. What it held is read here,
// once: then everything is written anew, and its links get the new program. Flows
// that it remembered (fullnat, rr) are not taken over.

// layoutTwo is the name of the folder of its pins.
const layoutTwo = pinPrefix + "2"

// The types of its maps, as far as they are read.
type (
	frontendTwo struct {
		ID, Ring, Slots, RingSize uint32
		Method, Scheduler         uint32 // as now
		Turn                      uint32
	}
	serverTwo struct {
		Addr       balancerAddr
		Frontend   uint32 // its id
		Weight     uint32
		Generation uint32
		Port       uint16
		Used, Held uint8
	}
	slotTwo struct{ First, Second uint32 }
)

// predecessor is a folder of layout 2.
type predecessor struct {
	pins *bpffs.Dir
	// inCharge says that its program is attached, and none of ours.
	inCharge bool
}

// openPredecessor takes hold of the folder of layout 2, if there is one.
func (d *DataPlane) openPredecessor() (*predecessor, error) {
	path := filepath.Join(d.config.PinDir, layoutTwo)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	pins, err := bpffs.Open(path)
	if errors.Is(err, bpffs.ErrInUse) {
		return nil, fmt.Errorf("xdp: PinDir: %w: end the agent of the other version first: what it holds goes on forwarding", err)
	}
	if err != nil {
		return nil, fmt.Errorf("xdp: PinDir: %w", err)
	}
	theirs, err := pins.Names(linkPrefix)
	ours, errOurs := d.pins.Names(linkPrefix)
	if err = errors.Join(err, errOurs); err != nil {
		return nil, errors.Join(fmt.Errorf("xdp: PinDir: %w", err), pins.Close())
	}
	return &predecessor{pins, len(theirs) > 0 && len(ours) == 0}, nil
}

// inherit makes the data plane hold just what the predecessor holds, while that
// is the one that forwards.
func (d *DataPlane) inherit(p *predecessor) error {
	if !p.inCharge {
		return nil
	}
	old, err := p.read()
	if err != nil {
		return fmt.Errorf("xdp: take over %s: %w", p.pins.Path(""), err)
	}
	for k := range d.held {
		if _, stays := old[k]; stays {
			continue
		}
		if err := d.Delete(k); err != nil {
			return fmt.Errorf("xdp: take over %s: %w", p.pins.Path(""), err)
		}
	}
	for _, f := range old {
		d.mu.Lock()
		err := d.upsert(f.Frontend, f.ring)
		d.mu.Unlock()
		if err != nil {
			return fmt.Errorf("xdp: take over %s: %w", p.pins.Path(""), err)
		}
	}
	return nil
}

// inherited is a frontend of layout 2.
type inherited struct {
	dataplane.Frontend
	ring addressRing
}

// addressRing is a ring by its servers' addresses.
type addressRing [][2]netip.AddrPort

// numbered gives it by numbers; who is no member is nobody.
func (r addressRing) numbered(ms members) []ring.Slot {
	numbers := map[netip.AddrPort]ring.ID{}
	for _, m := range ms {
		numbers[m.key.addr] = m.id
	}
	slots := make([]ring.Slot, len(r))
	for i, s := range r {
		slots[i].First = numbers[s[0]]
		slots[i].Older[0] = numbers[s[1]]
	}
	return slots
}

func (p *predecessor) read() (map[service.Key]*inherited, error) {
	maps := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range maps {
			m.Close()
		}
	}()
	for _, name := range []string{"frontends", "servers", "rings"} {
		m, err := ebpf.LoadPinnedMap(p.pins.Path(name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		maps[name] = m
	}
	servers := make([]serverTwo, maps["servers"].MaxEntries())
	n, err := readArray(maps["servers"], servers)
	if err != nil {
		return nil, fmt.Errorf("read servers: %w", err)
	}
	all := map[service.Key]*inherited{}
	var failed error
	err = readHash(maps["frontends"], func(k balancerFrontendKey, v frontendTwo) {
		if v.Method == uint32(balancerMethodMETHOD_NONE) {
			return
		}
		f := readTwo(fromKey(k), v, servers[:n])
		if len(f.Backends) == 0 {
			return // its first change was cut short
		}
		slots, err := readRingTwo(maps["rings"], v, servers[:n])
		failed = errors.Join(failed, err)
		all[f.Key] = &inherited{f, slots}
	})
	return all, errors.Join(err, failed)
}

// readTwo gives a frontend as it was asked for.
func readTwo(k service.Key, v frontendTwo, servers []serverTwo) dataplane.Frontend {
	f := dataplane.Frontend{
		Key: k, Method: nameOf(methods, balancerMethod(v.Method)), Scheduler: nameOf(schedulers, balancerScheduler(v.Scheduler)),
		RingSize: int(v.RingSize), Survival: service.SecondChance,
	}
	if f.Method == service.Tunnel {
		f.Encapsulation = service.IPIP
	}
	for _, s := range servers {
		if s.Used != 0 && s.Frontend == v.ID {
			f.Backends = append(f.Backends, service.Backend{Addr: s.address(), Weight: s.Weight})
		}
	}
	slices.SortFunc(f.Backends, service.Backend.Compare)
	return f
}

func (s serverTwo) address() netip.AddrPort {
	return netip.AddrPortFrom(fromAddr(s.Addr), netorder.Port(s.Port))
}

func readRingTwo(rings *ebpf.Map, v frontendTwo, servers []serverTwo) (addressRing, error) {
	if v.Slots == 0 {
		return nil, nil
	}
	var inner *ebpf.Map
	if err := rings.Lookup(v.Ring, &inner); err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	defer inner.Close()
	slots := make([]slotTwo, v.Slots)
	n, err := readArray(inner, slots)
	if err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	all := make(addressRing, n)
	for i, s := range slots[:n] {
		for j, id := range []uint32{s.First, s.Second} {
			if id != 0 && int(id) < len(servers) {
				all[i][j] = servers[id].address()
			}
		}
	}
	return all, nil
}

// remove takes the folder away, whose program is attached no longer.
func (p *predecessor) remove() error {
	if err := p.pins.RemoveAll(); err != nil {
		return fmt.Errorf("xdp: remove the pins of layout 2: %w", err)
	}
	return nil
}
