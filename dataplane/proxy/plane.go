// Package proxy is the service proxy's data plane: it programs the frontends that
// proxy.Build returns into the kernel, and serves the sockets of this node with programs
// at a cgroup (bpf/proxy.c). The set of frontends is decided elsewhere, and packets
// without a translated socket are handled in package packet.
package proxy

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
)

// DataPlane is a proxy.Plane: the kernel state of the service proxy. Its methods may be
// called from any goroutine.
type DataPlane struct {
	config  Config
	pins    *bpffs.Dir
	state   *bpfload.State
	kernel  proxyObjects
	missing features.Missing // optional features that the kernel does not support
	waiter  *waiter
	hooks   *hooks
	sweeper *sweeper

	mu          sync.Mutex
	closed      bool
	connections []uint64 // the kernel's, by id
	runs        runs
	ids         space
	programmed  map[proxyServiceKey]proxyService
	allowed     map[uint32][]netip.Prefix // of those that have any, by id, sorted
	nodes       map[proxyAddr]bool
	// stale reports that a write or a read failed: the state must be read again.
	// wrote reports that something was applied since it was last read.
	// reread reports that it was, other than by Keys.
	stale, wrote, reread bool
	surveyed             *survey // by Check, nil: none
	// writes counts entries written or deleted.
	writes uint64
}

// DataPlane is what the loop writes to.
var _ proxy.Plane = (*DataPlane)(nil)

// ErrClosed is the error of a DataPlane after Close or Detach.
var ErrClosed = errors.New("the proxy's data plane is closed")

// Open loads the programs, takes over what a predecessor left pinned in PinDir and
// replaces its programs without interrupting traffic.
func Open(config Config) (*DataPlane, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	d := &DataPlane{config: config}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("proxy: %w", err), d.release())
	}
	return d, nil
}

func (d *DataPlane) open() (err error) {
	if d.pins, err = openPins(d.config.PinDir); err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	carried, err := d.state.Carry()
	if len(carried) > 0 {
		d.config.Log.Info("proxy: taking over maps of another release", "maps", carried)
	}
	if err != nil {
		return err
	}
	if d.waiter, err = newWaiter(); err != nil {
		return err
	}
	memory, err := mapped[proxyTarget](d.kernel.Targets, readWrite)
	if err != nil {
		return err
	}
	d.runs = newRuns(memory, d.rouse)
	if d.connections, err = mapped[uint64](d.kernel.Connections, readWrite); err != nil {
		return err
	}
	if err := d.read(); err != nil {
		return err
	}
	if err := d.attach(); err != nil {
		return err
	}
	d.sweeper, err = newSweeper(d.config, &d.kernel, d.missing, d.keeps)
	return err
}

// attach replaces a predecessor's programs.
func (d *DataPlane) attach() (err error) {
	var programs []*ebpf.Program
	for _, h := range hooksOf(d.kernel.proxyPrograms) {
		programs = append(programs, h.program)
	}
	if err := d.state.Replace(programs...); err != nil {
		return err
	}
	if d.hooks, err = attach(d.pins, d.config.Cgroup, d.kernel.proxyPrograms); err != nil {
		return err
	}
	return d.state.Settle()
}

// How an array's memory is mapped.
const (
	readOnly  = unix.PROT_READ
	readWrite = unix.PROT_READ | unix.PROT_WRITE
)

// mapped returns an array's memory.
func mapped[T any](m *ebpf.Map, protection int) ([]T, error) {
	var t T
	memory, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries())*int(unsafe.Sizeof(t)), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap %s: %w", m, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), m.MaxEntries()), nil
}

func unmap[T any](memory []T) error {
	if memory == nil {
		return nil
	}
	var t T
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)*int(unsafe.Sizeof(t)))
	return unix.Munmap(bytes)
}

// rouse waits until no program is reading what was released, and makes it available
// again.
func (d *DataPlane) rouse() error {
	if err := d.waiter.wait(); err != nil {
		return err
	}
	d.runs.space.wake()
	d.ids.wake()
	return nil
}

// Keys returns the keys of all programmed frontends. If anything has been written since
// the kernel was last read, it is read again: the next Apply then also repairs what
// another process has damaged.
func (d *DataPlane) Keys() []proxy.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.stale = d.stale || d.wrote; d.stale {
		if err := d.read(); err != nil {
			d.config.Log.Error("proxy: failed to read the programmed state", "error", err)
		}
	}
	d.reread = false // the caller applies everything
	keys := make([]proxy.Key, 0, len(d.programmed))
	for k := range d.programmed {
		keys = append(keys, fromKey(k))
	}
	return keys
}

// Tables returns how full the tables of limited size are, without reading the kernel.
func (d *DataPlane) Tables() []dataplane.Table {
	d.mu.Lock()
	defer d.mu.Unlock()
	return []dataplane.Table{
		{Name: "proxy-frontends", Used: len(d.programmed), Size: int(d.config.MaxFrontends)},
		{Name: "proxy-endpoints", Used: d.runs.space.used(), Size: int(d.runs.space.size)},
	}
}

// Writes counts the map entries that were written or deleted since Open, except
// endpoints.
func (d *DataPlane) Writes() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// List returns the kernel's state, in no order.
func (d *DataPlane) List() iter.Seq2[Held, error] {
	return func(yield func(Held, error) bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed {
			yield(Held{}, ErrClosed)
			return
		}
		r := reader{d.kernel.Services, d.kernel.SourceRanges, d.runs.memory, d.connections}
		r.list(yield)
	}
}

// SetNodeAddresses sets the addresses on which node ports are served, in addition to
// loopback for the node's own sockets.
func (d *DataPlane) SetNodeAddresses(addresses []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	wanted := map[proxyAddr]bool{}
	for _, a := range addresses {
		wanted[toAddr(a.WithZone(""))] = true
	}
	if n := d.kernel.NodeAddresses.MaxEntries(); len(wanted) > int(n) {
		return fmt.Errorf("proxy: %d node addresses exceed the limit of %d: select fewer for node ports", len(wanted), n)
	}
	for a := range d.nodes {
		if wanted[a] {
			continue
		}
		if err := d.kernel.NodeAddresses.Delete(a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("proxy: node address %s: %w", fromAddr(a), err)
		}
		d.writes++
		delete(d.nodes, a)
	}
	for a := range wanted {
		if d.nodes[a] {
			continue
		}
		if err := d.kernel.NodeAddresses.Put(a, uint8(1)); err != nil {
			return fmt.Errorf("proxy: node address %s: %w", fromAddr(a), err)
		}
		d.writes++
		d.nodes[a] = true
	}
	return nil
}

// keeps reports whether a UDP service still has an endpoint for this node's sockets that
// are connected to it.
func (d *DataPlane) keeps(k proxyServiceKey, target netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.stale {
		return true // as far as known
	}
	return d.runs.keeps(d.programmed[k].Inside, target)
}

// Describe reports where the programs are attached.
func (d *DataPlane) Describe() dataplane.Description {
	d.mu.Lock()
	defer d.mu.Unlock()
	return dataplane.Description{Kind: "proxy", Attached: d.hooks.describe(), Warnings: d.sweeper.warnings()}
}

// Degraded lists the optional features that this kernel does not support.
func (d *DataPlane) Degraded() []features.Degraded { return d.missing }

// Close closes the data plane. What is programmed keeps working.
func (d *DataPlane) Close() error {
	d.sweeper.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	return d.release()
}

// Detach removes the programs and their state from the kernel, and closes the data plane.
func (d *DataPlane) Detach() error {
	d.sweeper.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	errs := []error{d.hooks.detach(), d.pins.RemoveAll()}
	d.pins = nil
	return errors.Join(append(errs, d.release())...)
}

// release closes what is open. Pinned objects stay.
func (d *DataPlane) release() error {
	d.closed = true
	errs := []error{unmap(d.runs.memory), unmap(d.connections)}
	d.runs.memory, d.connections = nil, nil
	if d.hooks != nil {
		errs = append(errs, d.hooks.close())
	}
	if d.waiter != nil {
		errs = append(errs, d.waiter.close())
	}
	errs = append(errs, d.kernel.Close())
	if d.pins != nil {
		errs = append(errs, d.pins.Close())
	}
	return errors.Join(errs...)
}
