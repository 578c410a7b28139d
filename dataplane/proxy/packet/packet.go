// Package packet is the service proxy's half for packets: it loads
// bpf/proxy_tc.c onto the maps of dataplane/proxy and keeps it attached to all
// devices of the node by which clients' packets come in or answers leave. Which
// services there are is written by dataplane/proxy.
package packet

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/bpffs"
	"github.com/fairlead/fairlead/dataplane/internal/counter"
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/dataplane/internal/tc"
)

// DefaultMaxFlows takes 20 MB of kernel memory.
const DefaultMaxFlows = 1 << 16

// Config says how the half for packets is set up.
type Config struct {
	// Maps is the folder where dataplane/proxy pins its maps (proxy.Folder):
	// that data plane is opened before, and closed after.
	Maps string
	// PinDir is a folder on a BPF file system that nobody else uses, one for a
	// network namespace. What is pinned there goes on working without this
	// process and is found again.
	PinDir string
	// MaxFlows is how many flows are remembered: the least recently used one
	// gives way. 0 for DefaultMaxFlows. A table that is pinned already keeps its
	// size, for the sake of its flows.
	MaxFlows uint32
	// Uplinks names the devices by which the node meets the network: clients
	// there are outside. Empty: all that carry a route with a gateway, and all
	// that lead to no pod.
	Uplinks []string
	// Log is told what changes; nil for slog's default.
	Log *slog.Logger
}

// ErrClosed is what a Half answers after Close or Detach.
var ErrClosed = errors.New("the service proxy's half for packets is closed")

// Half is the half for packets in the network namespace where Open was called.
// Its methods may be called from any goroutine.
type Half struct {
	cfg   Config
	log   *slog.Logger
	calls chan func()
	done  chan struct{} // closed when the worker has ended

	// What follows belongs to the worker.
	dir    *bpffs.Dir
	obj    packetObjects
	nl     *netlink.Handle
	hook   tc.Hook
	places map[int]place
	quit   bool
}

// Open loads the programs, takes over what a predecessor left pinned in PinDir
// and puts the programs in the place of its; packets are served meanwhile.
func Open(cfg Config) (*Half, error) { return open(cfg, tc.Open) }

func open(cfg Config, newHook tc.Opener) (*Half, error) {
	if cfg.PinDir == "" || cfg.Maps == "" {
		return nil, errors.New("packets: PinDir or Maps is empty: name folders on a BPF file system")
	}
	if cfg.MaxFlows == 0 {
		cfg.MaxFlows = DefaultMaxFlows
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("packets: %w", err)
	}
	defer ns.Close()
	h := &Half{cfg: cfg, log: cfg.Log, calls: make(chan func()), done: make(chan struct{})}
	opened := make(chan error)
	go h.work(ns, newHook, opened)
	if err := <-opened; err != nil {
		return nil, fmt.Errorf("packets: %w", err)
	}
	return h, nil
}

// work runs on a thread of its own in the half's network namespace, which ends
// with it: whatever asks the kernel about devices must be there.
func (h *Half) work(ns netns.NsHandle, newHook tc.Opener, opened chan<- error) {
	runtime.LockOSThread()
	defer close(h.done)
	watch, err := h.begin(ns, newHook)
	if err != nil {
		opened <- errors.Join(err, h.release())
		return
	}
	defer watch.Close()
	opened <- nil
	h.loop(watch.Changed)
}

func (h *Half) begin(ns netns.NsHandle, newHook tc.Opener) (*devices.Watch, error) {
	if err := netns.Set(ns); err != nil {
		return nil, err
	}
	var err error
	if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := h.load(); err != nil {
		return nil, err
	}
	// Before the first look: what changes after that is seen.
	watch, err := devices.NewWatch()
	if err != nil {
		return nil, err
	}
	if err := h.attach(newHook); err != nil {
		watch.Close()
		return nil, err
	}
	return watch, nil
}

func (h *Half) attach(newHook tc.Opener) error {
	if err := h.prepare(); err != nil {
		return err
	}
	// Masks are there before the programs that ask for them.
	view, err := devices.Look(h.nl, h.cfg.Uplinks)
	if err != nil {
		return err
	}
	if err := h.writeMasks(view); err != nil {
		return err
	}
	if h.hook, err = newHook(h.dir, h.obj.hooked()); err != nil {
		return err
	}
	return h.reconcile()
}

// Pauses of the worker: changes of devices come in bursts, and what was missed
// is found by looking again. A pod's device is there before its pod starts.
const (
	settle = 5 * time.Millisecond
	relook = 30 * time.Second
)

func (h *Half) loop(changed <-chan struct{}) {
	again, soon := time.NewTicker(relook), time.NewTimer(settle)
	defer again.Stop()
	defer soon.Stop()
	for waiting := true; !h.quit; {
		select {
		case call := <-h.calls:
			call()
			continue
		case <-changed:
			if !waiting {
				waiting = true
				soon.Reset(settle)
			}
			continue
		case <-soon.C:
			waiting = false
		case <-again.C:
		}
		if err := h.reconcile(); err != nil {
			h.log.Error("packets: attach or write", "error", err)
		}
	}
}

// reconcile makes the programs be at the devices that there are.
func (h *Half) reconcile() error {
	view, err := devices.Look(h.nl, h.cfg.Uplinks)
	if err != nil {
		return err
	}
	h.places = placesOf(view)
	return errors.Join(h.writeMasks(view), h.writeBridges(view), h.writeMACs(view), h.hook.Keep(points(h.places)))
}

// do has the worker run f.
func (h *Half) do(f func() error) error {
	answer := make(chan error, 1)
	select {
	case h.calls <- func() { answer <- f() }:
		return <-answer
	case <-h.done:
		return ErrClosed
	}
}

// Counters gives what became of packets since the half was first opened, by
// the names of bpf/proxy/count.h ("forwarded", "dropped-no-way").
func (h *Half) Counters() (counters map[string]uint64, err error) {
	err = h.do(func() error {
		counters, err = h.counters()
		return err
	})
	return counters, err
}

func (h *Half) counters() (map[string]uint64, error) {
	spec, err := loadPacket()
	if err != nil {
		return nil, err
	}
	return counter.Read(spec, "packet_counter", h.obj.PacketCounters)
}

// Describe tells where the programs are attached and what they dropped.
func (h *Half) Describe() dataplane.Description {
	d := dataplane.Description{Kind: "proxy-packets"}
	err := h.do(func() error {
		for index, p := range h.places {
			d.Attached = append(d.Attached, fmt.Sprintf("%s: %s: clients %s", tc.DeviceName(index), h.hook.Kind(), p))
		}
		slices.Sort(d.Attached)
		counters, err := h.counters()
		d.Drops = counter.Dropped(counters)
		return err
	})
	if err != nil {
		d.Warnings = append(d.Warnings, err.Error())
	}
	return d
}

// Close lets go of the half; what it holds goes on working.
func (h *Half) Close() error { return h.end(func() error { return nil }) }

// Detach takes the half out of the kernel, with all its flows, and closes it.
func (h *Half) Detach() error {
	return h.end(func() error {
		err := errors.Join(h.hook.Keep(nil), h.dir.RemoveAll())
		h.dir = nil
		return err
	})
}

func (h *Half) end(last func() error) error {
	err := h.do(func() error {
		h.quit = true
		return errors.Join(last(), h.release())
	})
	<-h.done
	return err
}

// release closes what is open. What is pinned stays.
func (h *Half) release() error {
	var errs []error
	if h.hook != nil {
		errs = append(errs, h.hook.Close())
	}
	if h.nl != nil {
		h.nl.Close()
	}
	errs = append(errs, h.obj.Close())
	if h.dir != nil {
		errs = append(errs, h.dir.Close())
	}
	return errors.Join(errs...)
}
