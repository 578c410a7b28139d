// Package xdp is the data plane in the kernel's driver path: it loads the program of
// bpf/balancer.c, attaches it and writes its maps. Maps and links are pinned, so that
// forwarding continues while no agent runs, and a new agent takes over without packet
// loss. Packet processing is written only in C. The set of frontends is decided
// elsewhere.
//
// Here is what needs several of the packages below at once: opening and taking over
// (xdp.go, open.go, predecessor.go), changes of frontends (write.go) and reading them back
// (read.go). What needs one map, program or device belongs to a package below. Tests that
// need the program and its maps are here too: they run it on packets.
package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/backendlist"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/dataplane/xdp/fragment"
	"github.com/fairlead/fairlead/dataplane/xdp/guard"
	"github.com/fairlead/fairlead/dataplane/xdp/observe"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
	"github.com/fairlead/fairlead/dataplane/xdp/synflood"
	"github.com/fairlead/fairlead/dataplane/xdp/vipbits"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/sysctl"
)

// DataPlane is the XDP data plane. Counters and Describe may be called from any
// goroutine, the other methods from one.
type DataPlane struct {
	config   Config
	pins     *bpffs.Dir
	state    *bpfload.State
	program  *program.Program
	kernel   *program.Objects // of program
	links    *attach.Links
	reasons  []string             // of drops, by number
	settings bpf.BalancerSettings // as the program has them
	orphans  *fragment.Orphanage  // fragments that wait for their first
	macs     *device.MACWatch
	routes   *device.RouteWatch
	synWatch *synflood.Watch

	guard    guard.Guard
	observer *observe.Observer

	mu          sync.Mutex
	programmed  map[service.Key]*programmed
	vips        map[netip.Addr]*vip
	bits        vipbits.Bits
	ids         alloc.Pool // of frontends
	servers     serverTable
	rings       *ringmap.Rings
	lists       *backendlist.Lists
	scratch     ringmap.Scratch  // passed to one change at a time
	ringMembers [2][]ring.Member // memory for ringRequest
	ranges      alloc.Extents    // of port_ranges
	uses        uses             // of frontends
	flows       flowtable.Table
	sweeper     sweeper
	synError    error // why frontends cannot be protected
	// stale reports that a call has failed halfway: the next one first reads the
	// kernel again.
	stale bool
}

var (
	_ dataplane.DataPlane = (*DataPlane)(nil)
	_ dataplane.Peered    = (*DataPlane)(nil)
	_ dataplane.Previewer = (*DataPlane)(nil)
)

// Open loads the program, takes over what a predecessor left in PinDir, and attaches to
// every interface. It works in the calling thread's network namespace. On failure it
// leaves everything unchanged except sysctls.
func Open(c Config) (*DataPlane, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := checkPorts(c.Ports); err != nil {
		return nil, err
	}
	if err := sysctl.SetAll(device.Sysctls(c.Interfaces)); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	d := newDataPlane(c)
	fresh, err := d.openPins()
	if err != nil {
		return nil, err
	}
	old, err := d.openPredecessor()
	if err != nil {
		return nil, errors.Join(err, d.pins.Close())
	}
	err = d.open(old)
	switch {
	case err == nil:
		return d, nil
	case old != nil:
		return nil, errors.Join(err, d.giveUp(old))
	case fresh:
		return nil, errors.Join(err, d.Detach())
	}
	return nil, errors.Join(err, d.Close())
}

func newDataPlane(c Config) *DataPlane {
	return &DataPlane{config: c, links: &attach.Links{}}
}

func (d *DataPlane) open(old *predecessor) error {
	if err := d.load(old); err != nil {
		return err
	}
	if err := d.read(); err != nil {
		return err
	}
	if err := d.readDraining(); err != nil {
		return err
	}
	var err error
	if !d.program.Missing.Has(features.DropEvents) {
		if d.orphans, err = fragment.Start(&d.kernel.BalancerMaps, d.kernel.Balancer); err != nil {
			return err
		}
	}
	if d.macs, err = device.WatchMACs(d.config.Interfaces, &d.kernel.BalancerMaps); err != nil {
		return err
	}
	if d.routes, err = device.WatchRoutes(&d.kernel.BalancerVariables); err != nil {
		return err
	}
	if err := d.attachTo(old); err != nil {
		return err
	}
	d.observer = d.newObserver()
	d.startSweeping()
	d.synWatch = synflood.Start(flooded{d}, d.kernel.SynHot, d.config.SYNThreshold)
	return nil
}

// attachTo attaches the programs, replacing a predecessor's if there is one.
func (d *DataPlane) attachTo(old *predecessor) error {
	if err := d.state.Replace(d.kernel.Balancer); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if _, err := d.carry(); err != nil { // changes since the first copy
		return err
	}
	d.links = attach.New(attach.Options{
		Program: d.kernel.Balancer, TxPorts: d.kernel.TxPorts, Pins: d.pins, Interfaces: d.config.Interfaces, Mode: d.config.Mode,
	})
	if old == nil {
		if err := d.links.Attach(nil); err != nil {
			return err
		}
		return errors.Join(d.program.UnpinOldSteps(), d.state.Settle())
	}
	if err := d.inherit(old); err != nil {
		return err
	}
	if err := d.links.Attach(old.pins); err != nil {
		return err
	}
	return errors.Join(d.program.UnpinOldSteps(), d.state.Settle(), old.remove())
}

// SetSources changes the load balancer's own addresses. fullnat flows with a previous
// address are lost.
func (d *DataPlane) SetSources(v4, v6 netip.Addr) error {
	if err := validateSources(v4, v6); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.settings
	next.Own4.Word, next.Own6.Word = entry.ToAddr(v4).Word, entry.ToAddr(v6).Word
	if err := d.putSettings(next); err != nil {
		return err
	}
	d.config.SourceV4, d.config.SourceV6 = v4, v6
	d.rebuildBits()
	return nil
}

// Close closes the data plane, which keeps forwarding.
func (d *DataPlane) Close() error { return errors.Join(d.links.Close(), d.letGo(), d.pins.Close()) }

// letGo closes the kernel objects.
func (d *DataPlane) letGo() error {
	d.macs.Close()
	d.routes.Close()
	d.synWatch.Close()
	d.sweeper.close()
	d.macs, d.routes, d.synWatch = nil, nil, nil
	return errors.Join(d.orphans.Close(), d.bits.Close(), d.rings.Close(), d.lists.Close(), d.flows.Close(), d.program.Close())
}

// Detach removes the data plane from the kernel: the programs from the interfaces, and
// everything programmed. It works in the calling thread's network namespace, which must
// be that of the interfaces.
func (d *DataPlane) Detach() error {
	return errors.Join(d.links.Detach(), d.letGo(), d.pins.RemoveAll())
}
