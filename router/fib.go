// Package router keeps an upstream router's kernel routing table in line with BGP: one
// route per prefix over all load balancers (ECMP), with a resilient next-hop group, so
// that a load balancer that leaves only takes its own flows with it.
//
// Set takes the complete desired state, compares it with the kernel's, and changes what
// differs. A restarted router finds its routes, groups and next hops in the kernel. The
// kernel's state is cached until a link changes or a write fails, so that the work is
// proportional to the change. Routes of others, with another protocol number or IDs
// outside our range, are never touched.
package router

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/keyed"
)

// Defaults of Config.
const (
	// DefaultProtocol is RTPROT_BGP: ip route prints "proto bgp".
	DefaultProtocol = unix.RTPROT_BGP
	// DefaultMetric is the metric in the paper.
	DefaultMetric = 20
	// DefaultBuckets per group: the smallest share is within 1 % of even for up to five
	// next hops, within 3 % for sixteen.
	DefaultBuckets = 512
	// DefaultFirstID is the start of our ID range; the kernel and routing daemons count
	// from 1.
	DefaultFirstID = 100000
)

const idRange = 100000

// Config configures the routes and their groups.
type Config struct {
	Protocol uint8  // 0 means DefaultProtocol
	Metric   uint32 // 0 means DefaultMetric
	Table    uint32 // 0 means main
	Buckets  uint16 // 0 means DefaultBuckets
	// IdleTimer is how long a bucket must be idle before it may be reassigned to a next
	// hop with too few buckets. With 0, the default, a new load balancer gets its share
	// immediately: all load balancers make the same choices, so the flows that move are
	// not lost. In steps of 10 ms.
	IdleTimer time.Duration
	// UnbalancedTimer is how long shares may stay uneven before busy buckets are moved,
	// too; 0 means forever. In steps of 10 ms.
	UnbalancedTimer time.Duration
	// Plain requests groups that are not resilient.
	Plain   bool
	FirstID uint32 // 0 means DefaultFirstID
	// NetNS is a file descriptor of the network namespace to use; 0 means that of the
	// calling thread.
	NetNS int
	Log   *slog.Logger
}

// Table is our part of the kernel routing table.
type Table struct {
	c      Config
	handle *netlink.Handle
	sock   *nl.SocketHandle
	wake   chan struct{} // receives a value when a retry becomes due
	rounds heartbeat.Rounds

	mu      sync.Mutex
	desired map[netip.Prefix]desiredRoute         // nil before the first Set
	held    *kernel                               // nil if it must be read from scratch
	keys    keyed.Tracker[netip.Prefix, struct{}] // the prefixes whose routes failed
	hidden  map[netip.Prefix]error                // routes of another daemon that cannot be shadowed
	failed  error                                 // of the last Set or Resync, if it concerns no single prefix
	plain   string                                // why groups are not resilient; empty if they are
	// degraded lists the features that the kernel lacks.
	degraded []features.Degraded
}

// New opens the table without changing anything.
func New(c Config) (*Table, error) {
	c = c.withDefaults()
	if c.FirstID > 1<<32-idRange {
		return nil, fmt.Errorf("fib: first ID %#x: must be at least %d below 2^32", c.FirstID, idRange)
	}
	ns := netns.NsHandle(-1)
	if c.NetNS != 0 {
		ns = netns.NsHandle(c.NetNS)
	}
	sock, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("fib: netlink socket: %w", err)
	}
	t := &Table{c: c, sock: &nl.SocketHandle{Socket: sock}, wake: make(chan struct{}, 1)}
	// The kernel then filters dumps by protocol and table (since Linux 4.20).
	if err := unix.SetsockoptInt(sock.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		sock.Close()
		return nil, fmt.Errorf("fib: netlink strict checking: %w", err)
	}
	_ = sock.SetExtAck(true) // only for clearer errors
	if t.handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
		sock.Close()
		return nil, fmt.Errorf("fib: netlink socket: %w", err)
	}
	if c.Plain {
		t.plain = "requested by configuration"
	}
	return t, nil
}

func (c Config) withDefaults() Config {
	if c.Protocol == 0 {
		c.Protocol = DefaultProtocol
	}
	if c.Metric == 0 {
		c.Metric = DefaultMetric
	}
	if c.Table == 0 {
		c.Table = unix.RT_TABLE_MAIN
	}
	if c.Buckets == 0 {
		c.Buckets = DefaultBuckets
	}
	if c.FirstID == 0 {
		c.FirstID = DefaultFirstID
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Plain returns why groups are not resilient, or "" if they are. It is known after the
// first route.
func (t *Table) Plain() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plain
}

// Degraded lists the optional features that this kernel lacks. It is known after the
// first route.
func (t *Table) Degraded() []features.Degraded {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.degraded
}

// Set makes the kernel have exactly these routes. New paths are added before old ones are
// removed. A next hop that this machine cannot reach, or that the kernel rejects, is
// omitted from its routes; a route that cannot be written stays as it was. The error,
// like Faults, names them after everything else has been done; while Keep or Follow runs,
// they are retried.
func (t *Table) Set(routes []advertise.RouteSet) error {
	defer t.rounds.Begin("routes")()
	t.mu.Lock()
	defer t.mu.Unlock()
	desired := make([]desiredRoute, len(routes))
	for i, r := range routes {
		desired[i] = desiredRoute{RouteSet: r}
	}
	return t.set(desired)
}

// desiredRoute is the desired route to a prefix. If links are given, the next hops are on them;
// otherwise the path to each is looked up.
type desiredRoute struct {
	advertise.RouteSet
	links []link
}

type link struct {
	device int
	onlink bool
}

func (w desiredRoute) equal(o desiredRoute) bool {
	return w.RouteSet.Equal(o.RouteSet) && slices.Equal(w.links, o.links)
}

func (t *Table) set(routes []desiredRoute) error {
	want := make(map[netip.Prefix]desiredRoute, len(routes))
	var changed []netip.Prefix
	now := time.Now()
	for p, s := range t.keys.All() {
		if !now.Before(s.Due) {
			changed = append(changed, p)
		}
	}
	for _, w := range routes {
		want[w.Prefix] = w
		if !t.desired[w.Prefix].equal(w) {
			changed = append(changed, w.Prefix)
		}
	}
	for p := range t.desired {
		if _, stays := want[p]; !stays {
			changed = append(changed, p)
		}
	}
	t.desired = want
	return t.try(changed)
}

// Desired returns what the kernel should have, sorted by prefix.
func (t *Table) Desired() []advertise.RouteSet {
	t.mu.Lock()
	defer t.mu.Unlock()
	sets := make([]advertise.RouteSet, 0, len(t.desired))
	for _, w := range t.desired {
		sets = append(sets, w.RouteSet)
	}
	slices.SortFunc(sets, func(a, b advertise.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
	return sets
}

// try brings the kernel to the desired state for some prefixes, or for all if it must be
// read from scratch. If the kernel rejects a write, the cached state may be wrong: then
// everything is done once more.
func (t *Table) try(changed []netip.Prefix) error {
	remembered := t.held != nil
	o := t.apply(changed)
	if o.rejected && remembered {
		t.held = nil
		o = t.apply(nil)
	}
	if o.err != nil {
		t.held = nil
	}
	t.settleFailed(o.err)
	t.settle(o.tried, time.Now())
	return t.err()
}

// Resync applies the last Set again: after link changes, when a retry is due, or
// periodically.
func (t *Table) Resync() error {
	defer t.rounds.Begin("routes")()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.desired == nil {
		return nil
	}
	t.held = nil
	return t.try(nil)
}

// List returns our routes in the kernel, sorted by prefix.
func (t *Table) List() ([]Route, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.read() // the actual state, not the cached one
	if err != nil {
		return nil, fmt.Errorf("fib: %w", err)
	}
	return t.present(k), nil
}

// Close leaves the kernel unchanged, because routes should survive a restart of the
// router; with remove, it first removes everything that is ours.
func (t *Table) Close(remove bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	if remove {
		t.desired, t.held = nil, nil
		t.keys = keyed.Tracker[netip.Prefix, struct{}]{}
		err = t.try(nil)
	}
	t.handle.Close()
	t.sock.Close()
	return err
}
