// Package packet is the packet part of the service proxy: it loads bpf/proxy_tc.c with
// the maps of dataplane/proxy and attaches it to all devices of the node on which
// clients' packets arrive or replies leave. dataplane/proxy writes the services.
package packet

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/counter"
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/tc"
)

// Limits of the tracked flows if Config does not set them: 20 MB and 40 MB of kernel
// memory.
const (
	leastFlows = 1 << 16
	mostFlows  = 1 << 17
)

// Config configures the packet half.
type Config struct {
	// Maps is the directory where dataplane/proxy pins its maps (proxy.Folder). Open
	// that data plane before this one, and close it after.
	Maps string
	// PinDir is a directory on a BPF file system for exclusive use, one per network
	// namespace. Pinned objects keep working without this process and are found
	// again.
	PinDir string
	// MaxFlows limits the tracked flows: the least recently used one is evicted. 0
	// for one per 64 KiB of the machine's memory, from 65,536 to 131,072. An existing
	// pinned table keeps its size, to preserve its flows.
	MaxFlows uint32
	// Uplinks are the devices that connect the node to the network: clients there are
	// outside. Empty: all with a route that has a gateway, and all that do not lead
	// to pods.
	Uplinks []string
	// Log receives changes; nil for slog's default.
	Log *slog.Logger

	sweepEvery time.Duration // 0 for the constant with that name
}

// ErrClosed is the error of a Half after Close or Detach.
var ErrClosed = devices.ErrClosed

// Half is the packet half in the network namespace where Open was called. Its methods may
// be called from any goroutine.
type Half struct {
	cfg    Config
	log    *slog.Logger
	worker *devices.Worker

	// What follows belongs to the worker.
	dir     *bpffs.Dir
	state   *bpfload.State
	obj     packetObjects
	missing features.Missing // optional features that the kernel does not support
	nl      *netlink.Handle
	hook    tc.Hook
	places  map[int]place
	keep    packetPacketFlowKeep
	swept   uint64 // entries, since Open
}

// Open loads the programs, takes over what a predecessor left pinned in PinDir and
// replaces its programs without interrupting traffic.
func Open(cfg Config) (*Half, error) { return open(cfg, tc.Open) }

func open(cfg Config, newHook tc.Opener) (*Half, error) {
	if cfg.PinDir == "" || cfg.Maps == "" {
		return nil, errors.New("packets: PinDir or Maps is empty: name folders on a BPF file system")
	}
	if cfg.sweepEvery == 0 {
		cfg.sweepEvery = sweepEvery
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	h := &Half{cfg: cfg, log: cfg.Log}
	var err error
	h.worker, err = devices.Start(devices.Work{
		Name: "packets", Log: h.log, Settle: settle, Relook: relook,
		Begin: func() error { return h.begin(newHook) }, Release: h.release, Reconcile: h.reconcile,
	})
	if err != nil {
		return nil, err
	}
	go h.keepSwept()
	return h, nil
}

// Delays of the worker. A pod's device exists before its pod starts.
const (
	settle = 5 * time.Millisecond
	relook = 30 * time.Second
)

func (h *Half) begin(newHook tc.Opener) error {
	var err error
	if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if err := h.load(); err != nil {
		return err
	}
	return h.attach(newHook)
}

func (h *Half) attach(newHook tc.Opener) error {
	if err := h.prepare(); err != nil {
		return err
	}
	// Masks must be present before the programs that need them.
	view, err := devices.Look(h.nl, h.cfg.Uplinks)
	if err != nil {
		return err
	}
	if err := h.writeMasks(view); err != nil {
		return err
	}
	if err := h.takeOver(newHook); err != nil {
		return err
	}
	return h.reconcile()
}

// takeOver replaces a predecessor's programs.
func (h *Half) takeOver(newHook tc.Opener) (err error) {
	carried, err := h.state.Carry()
	if len(carried) > 0 {
		h.log.Info("packets: taking over maps of another release", "maps", carried)
	}
	if err != nil {
		return err
	}
	h.hook, err = h.obj.hooked().TakeOver(h.state, h.dir, newHook)
	return err
}

// reconcile attaches the programs to the existing devices.
func (h *Half) reconcile() error {
	view, err := devices.Look(h.nl, h.cfg.Uplinks)
	if err != nil {
		return err
	}
	h.places = placesOf(view)
	return errors.Join(h.writeMasks(view), h.writeBridges(view), h.writeMACs(view), h.hook.Keep(points(h.places)))
}

// Counters returns the outcomes of packets since the half was first opened, by the names
// of bpf/proxy/count.h ("forwarded", "dropped-no-way"); and "half-swept": halves of ended
// flows that were swept, since Open.
func (h *Half) Counters() (map[string]uint64, error) { return devices.Ask(h.worker, h.counters) }

func (h *Half) counters() (map[string]uint64, error) {
	counters, err := counter.Read(loadPacket, "packet_counter", h.obj.PacketCounters)
	if err == nil {
		counters["half-swept"] = h.swept
	}
	return counters, err
}

// Describe reports where the programs are attached and what they dropped.
func (h *Half) Describe() dataplane.Description {
	d := dataplane.Description{Kind: "proxy-packets"}
	err := h.worker.Do(func() error {
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

// Degraded lists the optional features that this kernel does not support.
func (h *Half) Degraded() []features.Degraded { return h.missing }

// Close closes the half. What is programmed keeps working.
func (h *Half) Close() error { return h.worker.End(nil) }

// Detach removes the half from the kernel, with all its flows, and closes it.
func (h *Half) Detach() error {
	return h.worker.End(func() error {
		err := errors.Join(h.hook.Keep(nil), h.dir.RemoveAll())
		h.dir = nil
		return err
	})
}

// release closes what is open. Pinned objects stay.
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
