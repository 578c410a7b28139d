// Package dsr is the DSR agent: the part of direct server return that runs on the
// backends' node. It loads bpf/dsr.c, configures it with the local backends, and
// attaches it to the devices through which the kernel routes packets to them. Backends
// need no configuration: neither the VIP nor a tunnel device.
//
// A firewall on the node must accept tunneled packets (IP protocols 4 and 41, or UDP to
// GUE's port) to pods.
//
// This package does not decide which backends exist (that is plan's task), nor does it
// send packets from a load balancer to a backend (that is dataplane/xdp's).
package dsr

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/counter"
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/internal/tc"
)

// Defaults of Config.
const (
	// DefaultMaxFlows takes 37 MB of kernel memory.
	DefaultMaxFlows = 1 << 19
	// DefaultLinger is as long as IPVS keeps an idle TCP connection.
	DefaultLinger = 15 * time.Minute
)

// Config configures a DSR agent.
type Config struct {
	// PinDir is a directory on a BPF file system for exclusive use, one per network
	// namespace. Pinned objects keep working without this process and are found
	// again.
	PinDir string
	// MaxFlows is the capacity of the flow table, at least twice the expected number;
	// 0 for DefaultMaxFlows. An existing pinned table keeps its size, to preserve its
	// flows.
	MaxFlows uint32
	// GUEPort is the UDP port of tunnels with GUE encapsulation; 0 for
	// service.DefaultGUEPort.
	GUEPort uint16
	// Uplinks are the devices that connect the node to the network. Empty: a device
	// with a default route, and a veth with any route that has a gateway.
	Uplinks []string
	// Linger is how long a backend that is removed from Set still serves its
	// established flows after their last packet; 0 for DefaultLinger.
	Linger time.Duration
	// Auth makes packets from load balancers and other nodes be checked for an
	// authentication tag. Without keys tags are not checked.
	Auth nodekey.Auth
	// KeepMSS leaves the backends' TCP segment size unchanged. Otherwise clients
	// receive one that leaves room for the load balancer's overhead, because
	// full-size packets would not fit the path to the backend.
	KeepMSS bool
	// Log receives changes; nil for slog's default.
	Log *slog.Logger
}

// ErrClosed is the error of an Agent after Close or Detach.
var ErrClosed = devices.ErrClosed

// Agent is a DSR agent in the network namespace where Open was called. Its methods may be
// called from any goroutine.
type Agent struct {
	cfg    Config
	log    *slog.Logger
	worker *devices.Worker

	// What follows belongs to the worker.
	dir     *bpffs.Dir
	obj     dsrObjects
	missing features.Missing // optional features that the kernel does not support
	routes  *routes
	hook    tc.Hook
	desired *rowSet               // nil until the first Set: nothing is removed before
	abroad  map[netip.Addr]string // desired backends that are not here, and why
	// balancers are those of the last SetBalancers, once it was called; nil: any.
	balancers    knownBalancers
	balancersSet bool
	// generation counts changes of the rows, for the programs.
	generation uint32
}

// Open loads the programs, takes over what a predecessor left pinned in PinDir and
// replaces its programs without interrupting traffic. Its entries stay in force until the
// first Set.
func Open(cfg Config) (*Agent, error) {
	return open(cfg, tc.Open)
}

func open(cfg Config, newHook tc.Opener) (*Agent, error) {
	if cfg.PinDir == "" {
		return nil, errors.New("DSR agent: PinDir is empty: name a folder on a BPF file system")
	}
	if cfg.MaxFlows == 0 {
		cfg.MaxFlows = DefaultMaxFlows
	}
	if cfg.GUEPort == 0 {
		cfg.GUEPort = service.DefaultGUEPort
	}
	if cfg.Linger == 0 {
		cfg.Linger = DefaultLinger
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	h := &Agent{cfg: cfg, log: cfg.Log}
	var err error
	h.worker, err = devices.Start(devices.Work{
		Name: "DSR agent", Log: h.log, Settle: settle, Relook: min(relook, max(cfg.Linger/2, settle)),
		Begin: func() error { return h.load(newHook) }, Release: h.release, Reconcile: h.reconcile,
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Delays of the worker.
const (
	settle = 20 * time.Millisecond
	relook = 30 * time.Second
)

// Set makes the agent serve exactly these entries, except those whose backends are not on
// this node: they are added when a route makes them local. Invalid entries are rejected
// with a RejectedError each, and the others are programmed. It may be called again with the
// same entries.
//
// A backend that is left out keeps serving its existing flows.
func (h *Agent) Set(entries []Entry) error {
	d, refused := newRowSet(entries)
	return errors.Join(refused, h.worker.Do(func() error {
		h.desired = d
		return h.reconcile()
	}))
}

// List returns the entries programmed in the kernel, sorted, including a predecessor's,
// but without those that only linger.
func (h *Agent) List() ([]Entry, error) {
	return devices.Ask(h.worker, func() ([]Entry, error) {
		rows, err := h.rows()
		return entriesOf(rows), err
	})
}

// Local reports whether a backend is on this node: behind one of its veths, bridges or
// taps, or the node itself.
func (h *Agent) Local(server netip.Addr) (bool, error) {
	return devices.Ask(h.worker, func() (bool, error) {
		view, err := h.routes.look(h.cfg.Uplinks)
		if err != nil {
			return false, err
		}
		w, err := h.routes.locate(view, server)
		return w.place != elsewhere, err
	})
}

// Pins returns the directory of the maps' pins, for loading other programs with them, as
// benchmarks do.
func (h *Agent) Pins() (folder string, err error) {
	return devices.Ask(h.worker, func() (string, error) { return h.dir.Path(layout), nil })
}

// Describe reports where the agent is attached and what it dropped.
func (h *Agent) Describe() dataplane.Description {
	d := dataplane.Description{Kind: "dsr"}
	err := h.worker.Do(func() error {
		d.Attached = describe(h.hook)
		for _, server := range slices.SortedFunc(maps.Keys(h.abroad), netip.Addr.Compare) {
			d.Attached = append(d.Attached, fmt.Sprintf("%s is not on this node: %s", server, h.abroad[server]))
		}
		counters, err := h.counters()
		d.Drops = counter.Dropped(counters)
		return err
	})
	if err != nil {
		d.Attached = append(d.Attached, err.Error())
	}
	return d
}

// Close closes the agent. What is programmed keeps working.
func (h *Agent) Close() error { return h.worker.End(h.leaveFlows) }

// Detach removes the agent from the kernel, with all its entries and flows, and closes it.
func (h *Agent) Detach() error {
	return h.worker.End(func() error {
		err := errors.Join(h.hook.Keep(nil), h.dir.RemoveAll())
		h.dir = nil
		return err
	})
}
