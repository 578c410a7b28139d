// Package dsr is the half of direct return that runs on the node of the
// real servers: it loads bpf/server.c, tells it which servers are here, and
// keeps it attached where the kernel's routes lead to them. Servers stay as
// they are: they hold no VIP and need no tunnel device.
//
// A firewall on the node must let the tunnel's packets (IP protocols 4 and 41,
// or UDP to GUE's port) through to pods.
//
// Nothing here decides which servers there are (that is plan's), and nothing
// here sends a packet to a server from a balancer (that is dataplane/xdp's).
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

// Defaults of what a Config leaves open.
const (
	// DefaultMaxFlows takes 37 MB of kernel memory.
	DefaultMaxFlows = 1 << 19
	// DefaultLinger is as long as IPVS keeps an idle TCP connection.
	DefaultLinger = 15 * time.Minute
)

// Config says how a server half is set up.
type Config struct {
	// PinDir is a folder on a BPF file system that nobody else uses, one for a
	// network namespace. What is pinned there goes on working without this
	// process and is found again.
	PinDir string
	// MaxFlows is for how many flows there is room, twice as many as are
	// expected at least; 0 for DefaultMaxFlows. A table that is pinned already
	// keeps its size, for the sake of its flows.
	MaxFlows uint32
	// GUEPort is the UDP port at which tunnels of the encapsulation gue end; 0
	// for service.DefaultGUEPort.
	GUEPort uint16
	// Uplinks names the devices by which the node meets the network. Empty: a
	// device that carries a default route, and a veth that carries any route
	// with a gateway.
	Uplinks []string
	// Linger is how long a server that is gone from Set still serves its
	// established flows after their last packet; 0 for DefaultLinger.
	Linger time.Duration
	// Auth has packets of load balancers and of other nodes be checked for an
	// authentication tag. Without keys none is looked at.
	Auth nodekey.Auth
	// KeepMSS leaves the servers' TCP segment size alone. Otherwise clients
	// are told one that leaves room for what the balancer adds, as long
	// packets would not fit the way to the server.
	KeepMSS bool
	// Log is told what changes; nil for slog's default.
	Log *slog.Logger
}

// ErrClosed is what a Half answers after Close or Detach.
var ErrClosed = devices.ErrClosed

// Half is a server half in the network namespace where Open was called. Its
// methods may be called from any goroutine.
type Half struct {
	cfg    Config
	log    *slog.Logger
	worker *devices.Worker

	// What follows belongs to the worker.
	dir     *bpffs.Dir
	obj     serverObjects
	missing features.Missing // optional features that the kernel refuses
	routes  *routes
	hook    tc.Hook
	desired *rowSet               // nil until the first Set: nothing is pruned before
	abroad  map[netip.Addr]string // servers desired that are not here, and why
	// balancers are those of the last SetBalancers, once it was called; nil: any.
	balancers    knownBalancers
	balancersSet bool
	// generation counts changes of the rows, for the programs.
	generation uint32
}

// Open loads the programs, takes over what a predecessor left pinned in
// PinDir and replaces its programs; traffic goes on meanwhile. Entries that it
// left stay in force until the first Set.
func Open(cfg Config) (*Half, error) {
	return open(cfg, tc.Open)
}

func open(cfg Config, newHook tc.Opener) (*Half, error) {
	if cfg.PinDir == "" {
		return nil, errors.New("server half: PinDir is empty: name a folder on a BPF file system")
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
	h := &Half{cfg: cfg, log: cfg.Log}
	var err error
	h.worker, err = devices.Start(devices.Work{
		Name: "server half", Log: h.log, Settle: settle, Relook: min(relook, max(cfg.Linger/2, settle)),
		Begin: func() error { return h.load(newHook) }, Release: h.release, Reconcile: h.reconcile,
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Pauses of the worker.
const (
	settle = 20 * time.Millisecond
	relook = 30 * time.Second
)

// Set makes the half serve exactly these entries, the ones whose servers are
// not on this node left out: they are taken up when a route makes them local.
// Entries that are not valid are refused by name, one error each, and the
// others hold. It may be called again with the same entries.
//
// A server that is left out goes on serving the flows that it has.
func (h *Half) Set(entries []Entry) error {
	d, refused := newRowSet(entries)
	return errors.Join(refused, h.worker.Do(func() error {
		h.desired = d
		return h.reconcile()
	}))
}

// List gives the entries that the kernel holds, sorted, also by a predecessor;
// without those that only linger.
func (h *Half) List() ([]Entry, error) {
	return devices.Ask(h.worker, func() ([]Entry, error) {
		rows, err := h.rows()
		return entriesOf(rows), err
	})
}

// Local tells whether a server is on this node: behind a veth, bridge or tap
// of it, or the node itself.
func (h *Half) Local(server netip.Addr) (bool, error) {
	return devices.Ask(h.worker, func() (bool, error) {
		view, err := h.routes.look(h.cfg.Uplinks)
		if err != nil {
			return false, err
		}
		w, err := h.routes.locate(view, server)
		return w.place != elsewhere, err
	})
}

// Pins gives the folder of the maps' pins, for who loads other programs onto
// them, as benchmarks do.
func (h *Half) Pins() (folder string, err error) {
	return devices.Ask(h.worker, func() (string, error) { return h.dir.Path(layout), nil })
}

// Describe tells where the half is attached and what it dropped.
func (h *Half) Describe() dataplane.Description {
	d := dataplane.Description{Kind: "server-half"}
	err := h.worker.Do(func() error {
		d.Attached = describe(h.hook)
		for _, server := range slices.SortedFunc(maps.Keys(h.abroad), netip.Addr.Compare) {
			d.Attached = append(d.Attached, fmt.Sprintf("%s is not here: %s", server, h.abroad[server]))
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

// Close lets go of the half; what it holds goes on working.
func (h *Half) Close() error { return h.worker.End(h.leaveFlows) }

// Detach takes the half out of the kernel, with all its entries and flows, and
// closes it.
func (h *Half) Detach() error {
	return h.worker.End(func() error {
		err := errors.Join(h.hook.Keep(nil), h.dir.RemoveAll())
		h.dir = nil
		return err
	})
}
