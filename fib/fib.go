// Package fib keeps an upstream router's kernel table as BGP wants it: one
// route a prefix over all balancers (ECMP), held by a resilient next-hop group
// so that a balancer that leaves takes only its own flows with it.
//
// Set takes the whole of what should be there, compares it with what the
// kernel holds, and changes what differs. The kernel is the only memory: a
// restarted router finds its routes, groups and next hops again. What others
// put there, by another protocol number or outside our ids, is never touched.
package fib

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/announce"
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
	desired []announce.RouteSet
	failed  error  // of the last Set or Resync
	plain   string // why groups are not resilient; empty where they are
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
	t := &Table{c: c, sock: &nl.SocketHandle{Socket: sock}}
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

// Set makes the kernel hold exactly these routes. New paths are added before
// old ones are removed. A next hop that this machine cannot reach is left out
// and named in the error, after all else has been done.
func (t *Table) Set(routes []announce.RouteSet) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.desired = routes
	return t.try()
}

// try applies what is desired and keeps the error.
func (t *Table) try() error {
	t.failed = t.apply()
	if t.failed != nil {
		return fmt.Errorf("fib: %w", t.failed)
	}
	return nil
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
	return t.try()
}

// List gives what the kernel holds of ours, sorted by prefix.
func (t *Table) List() ([]Route, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.read()
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
		t.desired = nil
		err = t.apply()
	}
	t.handle.Close()
	t.sock.Close()
	if err != nil {
		return fmt.Errorf("fib: %w", err)
	}
	return nil
}

// kernel is what we read before the first write.
type kernel struct {
	hops   map[hop]uint32   // ours: id of each next hop
	groups map[uint32]group // ours
	hopOf  map[uint32]hop   // ours, the other way round
	used   map[uint32]bool  // every id there is, foreign ones too
	routes []installed      // ours
}

func (t *Table) ours(id uint32) bool { return id >= t.c.FirstID && id-t.c.FirstID < idRange }

func (t *Table) read() (*kernel, error) {
	k := &kernel{hops: map[hop]uint32{}, groups: map[uint32]group{}, hopOf: map[uint32]hop{}, used: map[uint32]bool{}}
	objects, err := t.listNexthops()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		k.used[o.id] = true
		switch {
		case !t.ours(o.id) || o.protocol != t.c.Protocol:
		case o.members != nil:
			k.groups[o.id] = group{members: o.members, resilient: o.resilient}
		default:
			k.hops[o.hop], k.hopOf[o.id] = o.id, o.hop
		}
	}
	all, err := t.listRoutes()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if _, mine := k.groups[r.group]; mine {
			k.routes = append(k.routes, r)
		}
	}
	return k, nil
}

// freeID finds an id that nobody has.
func (t *Table) freeID(k *kernel) (uint32, error) {
	for i := range uint32(idRange) {
		if id := t.c.FirstID + i; !k.used[id] {
			k.used[id] = true
			return id, nil
		}
	}
	return 0, errors.New("no free next-hop id in our range")
}

// resolve finds the way to a next hop: its device and, where it is not on a
// network of ours, the gateway towards it.
func (t *Table) resolve(nh netip.Addr) (hop, error) {
	rs, err := t.handle.RouteGet(nh.AsSlice())
	if err != nil {
		return hop{}, fmt.Errorf("next hop %s: no route to it (%w)", nh, err)
	}
	if len(rs) == 0 || rs[0].Type != unix.RTN_UNICAST {
		return hop{}, fmt.Errorf("next hop %s is an address of this machine", nh)
	}
	h := hop{gateway: nh, oif: rs[0].LinkIndex}
	if gw, ok := netip.AddrFromSlice(rs[0].Gw); ok {
		h.gateway = gw.Unmap()
	}
	return h, nil
}
