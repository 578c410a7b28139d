// Package fib keeps an upstream router's kernel table as BGP wants it: one
// route a prefix over all balancers (ECMP), held by a resilient next-hop group
// so that a balancer that leaves takes only its own flows with it.
//
// Set takes the whole of what should be there, compares it with what the
// kernel holds, and changes what differs. A restarted router finds its routes,
// groups and next hops again in the kernel. What it has read is remembered until
// a link changes or a write fails, so that the work grows with the change. What
// others put there, by another protocol number or outside our ids, is never
// touched.
package fib

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/internal/features"
)

// Defaults.
const (
	// DefaultProtocol is RTPROT_BGP: ip route prints "proto bgp".
	DefaultProtocol = unix.RTPROT_BGP
	// DefaultMetric is the paper's.
	DefaultMetric = 20
	// DefaultBuckets a group: the smallest share is within 1 % of even for up
	// to five next hops, within 3 % for sixteen.
	DefaultBuckets = 512
	// DefaultFirstID starts the range of ids that are ours; the kernel and
	// routing daemons count from 1.
	DefaultFirstID = 100000
)

const idRange = 100000

// Config says whose routes these are and how groups behave.
type Config struct {
	Protocol uint8  // 0 means DefaultProtocol
	Metric   uint32 // 0 means DefaultMetric
	Table    uint32 // 0 means main
	Buckets  uint16 // 0 means DefaultBuckets
	// IdleTimer is how long a bucket must see no packet before it may be given
	// to a next hop that is short of buckets. 0, the default, gives a new
	// balancer its share at once: all balancers choose alike, so the flows that
	// move are not lost. Steps of 10 ms.
	IdleTimer time.Duration
	// UnbalancedTimer is how long shares may stay uneven before busy buckets
	// are moved too; 0 means for ever. Steps of 10 ms.
	UnbalancedTimer time.Duration
	// Plain asks for groups that are not resilient.
	Plain   bool
	FirstID uint32 // 0 means DefaultFirstID
	// NetNS is a file descriptor of the network namespace to work in; 0 means
	// the one of the calling thread.
	NetNS int
	Log   *slog.Logger
}

// Table is the part of the kernel's table that is ours.
type Table struct {
	c      Config
	handle *netlink.Handle
	sock   *nl.SocketHandle

	mu      sync.Mutex
	desired map[netip.Prefix]wish  // nil before the first Set
	held    *kernel                // nil where it is to be read anew
	refused map[netip.Prefix]error // what of desired is not in the kernel, and why
	failed  error                  // of the last Set or Resync
	plain   string                 // why groups are not resilient; empty where they are
	// degraded is what the kernel refuses.
	degraded []features.Degraded
}

// New opens the table; it changes nothing.
func New(c Config) (*Table, error) {
	c = c.withDefaults()
	if c.FirstID > 1<<32-idRange {
		return nil, fmt.Errorf("fib: first id %#x: the %d ids after it must fit into 32 bits", c.FirstID, idRange)
	}
	ns := netns.NsHandle(-1)
	if c.NetNS != 0 {
		ns = netns.NsHandle(c.NetNS)
	}
	sock, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("fib: netlink socket: %w", err)
	}
	t := &Table{c: c, sock: &nl.SocketHandle{Socket: sock}, refused: map[netip.Prefix]error{}}
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
		t.plain = "asked for"
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

// Plain says why groups are not resilient, empty where they are. It is known
// after the first route.
func (t *Table) Plain() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plain
}

// Degraded lists the optional features that this kernel refuses. It is known after
// the first route.
func (t *Table) Degraded() []features.Degraded {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.degraded
}

// Set makes the kernel hold exactly these routes. New paths are added before
// old ones are removed. A next hop that this machine cannot reach is left out
// and named in the error, after all else has been done.
func (t *Table) Set(routes []announce.RouteSet) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wishes := make([]wish, len(routes))
	for i, r := range routes {
		wishes[i] = wish{RouteSet: r}
	}
	return t.set(wishes)
}

// wish is what the route to a prefix is to be. Where devices are given, the next
// hops are on their links; else the way to each is looked up.
type wish struct {
	announce.RouteSet
	devices []int
}

func (w wish) equal(o wish) bool {
	return w.RouteSet.Equal(o.RouteSet) && slices.Equal(w.devices, o.devices)
}

func (t *Table) set(wishes []wish) error {
	want := make(map[netip.Prefix]wish, len(wishes))
	changed := slices.Collect(maps.Keys(t.refused))
	for _, w := range wishes {
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

// Desired gives what the kernel is to hold, sorted by prefix.
func (t *Table) Desired() []announce.RouteSet {
	t.mu.Lock()
	defer t.mu.Unlock()
	sets := make([]announce.RouteSet, 0, len(t.desired))
	for _, w := range t.desired {
		sets = append(sets, w.RouteSet)
	}
	slices.SortFunc(sets, func(a, b announce.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
	return sets
}

// try brings the kernel to what is desired for some prefixes, or for all where
// it must be read anew, and keeps the error. A write that fails may mean that
// what is remembered is not so any more: then all is done once more.
func (t *Table) try(changed []netip.Prefix) error {
	remembered := t.held != nil
	err := t.apply(changed)
	if err != nil && remembered {
		err = t.apply(nil)
	}
	t.failed = errors.Join(err, t.refusals())
	if t.failed != nil {
		return fmt.Errorf("fib: %w", t.failed)
	}
	return nil
}

// namedRefusals is how many of the prefixes that have no route an error names.
const namedRefusals = 10

func (t *Table) refusals() error {
	var errs []error
	for _, p := range slices.SortedFunc(maps.Keys(t.refused), netip.Prefix.Compare) {
		if len(errs) == namedRefusals {
			errs = append(errs, fmt.Errorf("and %d other prefixes", len(t.refused)-namedRefusals))
			break
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, t.refused[p]))
	}
	return errors.Join(errs...)
}

// Failed says why the kernel is not yet as the last Set asked; nil where it is.
func (t *Table) Failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// Resync does the last Set again: after links came and went, or now and then.
func (t *Table) Resync() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.desired == nil {
		return nil
	}
	t.held = nil
	return t.try(nil)
}

// List gives what the kernel holds of ours, sorted by prefix.
func (t *Table) List() ([]Route, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.read() // what there is, not what is remembered
	if err != nil {
		return nil, fmt.Errorf("fib: %w", err)
	}
	return t.present(k), nil
}

// Close leaves the kernel as it is, for routes should outlive a restart of
// the router; with remove it takes out what is ours first.
func (t *Table) Close(remove bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	if remove {
		t.desired, t.held = nil, nil
		err = t.apply(nil)
	}
	t.handle.Close()
	t.sock.Close()
	if err != nil {
		return fmt.Errorf("fib: %w", err)
	}
	return nil
}

// resolve finds the way to a next hop: its device and, where it is not on a
// network of ours, the gateway towards it. The default route is no way: a next
// hop that nobody knows would draw its share of the packets there.
func (t *Table) resolve(nh netip.Addr) (hop, error) {
	rs, err := t.handle.RouteGetWithOptions(nh.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return hop{}, fmt.Errorf("next hop %s: no route to it (%w)", nh, err)
	}
	switch {
	case len(rs) == 0 || rs[0].Type != unix.RTN_UNICAST:
		return hop{}, fmt.Errorf("next hop %s is an address of this machine", nh)
	case rs[0].Dst == nil || rs[0].Dst.IP.IsUnspecified():
		return hop{}, fmt.Errorf("next hop %s: only the default route leads to it; give it a network or a route of its own", nh)
	}
	r := rs[0]
	h, via := hop{gateway: nh, oif: r.LinkIndex}, r.Gw
	if len(r.MultiPath) > 0 {
		h.oif, via = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
	}
	if gw, ok := netip.AddrFromSlice(via); ok {
		h.gateway = gw.Unmap()
	}
	return h, nil
}
