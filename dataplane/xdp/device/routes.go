package device

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// RouteWatch lets the programs cache next hops for longer than a clock tick, while it
// watches the kernel's routes, neighbors and devices (bpf/balancer/egress.h). It is no
// devices.Watch, because it reads the messages, and the programs must not rely on it once
// it fails.
type RouteWatch struct {
	variables *bpf.BalancerVariables
	socket    *nl.NetlinkSocket
	neighbors neighbors
	version   uint32
	stop      chan struct{}
	done      chan struct{}
}

const (
	// routesLease is for how long the programs rely on the watch if it does not renew
	// that.
	routesLease = time.Second
	routesRenew = routesLease / 4
	// routesPause limits how often a burst of changes empties the cache. It is less than
	// a clock tick, the age of the cache without a watch.
	routesPause = 2 * time.Millisecond
	// versionStep is the step of routes_version.
	versionStep = 1 << 16
)

// routeGroups are the groups of messages about what bpf_fib_lookup reads.
var routeGroups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF,
	unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV6_NETCONF,
}

// WatchRoutes watches until Close, in the calling thread's network namespace.
func WatchRoutes(variables *bpf.BalancerVariables) (*RouteWatch, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, routeGroups...)
	if err != nil {
		return nil, fmt.Errorf("xdp: watch routes: %w", err)
	}
	w := &RouteWatch{
		variables: variables, socket: socket, neighbors: neighbors{}, version: rand.Uint32() &^ (versionStep - 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	wait := unix.NsecToTimeval(int64(routesRenew))
	if err := errors.Join(socket.SetReceiveTimeout(&wait), w.invalidate(), w.renew()); err != nil {
		socket.Close()
		return nil, fmt.Errorf("xdp: watch routes: %w", err)
	}
	go w.run()
	return w, nil
}

// Close ends it, if it is not nil. The programs then query the kernel once per clock tick.
func (w *RouteWatch) Close() {
	if w == nil {
		return
	}
	close(w.stop)
	w.socket.Close() // ends a read
	<-w.done
	if err := w.variables.RoutesWatched.Set(uint64(0)); err != nil {
		slog.Warn("cached next hops are trusted until the lease of the watch ends", "lease", routesLease, "error", err)
	}
}

func (w *RouteWatch) run() {
	defer close(w.done)
	for {
		messages, _, err := w.socket.Receive()
		select {
		case <-w.stop:
			return
		default:
		}
		if err := w.handle(messages, err); err != nil {
			slog.Error("failed to watch routes, will retry: until then, next hops are cached for one clock tick", "error", err)
			time.Sleep(routesRenew)
		}
	}
}

// handle makes the programs act on the result of a read.
func (w *RouteWatch) handle(messages []syscall.NetlinkMessage, err error) error {
	changed := false
	switch {
	case errors.Is(err, unix.ENOBUFS): // messages are lost
		clear(w.neighbors)
		changed = true
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
	case err != nil:
		return err
	}
	for _, m := range messages {
		changed = w.neighbors.changes(m) || changed
	}
	if changed {
		if err := w.invalidate(); err != nil {
			return err
		}
		time.Sleep(routesPause)
	}
	return w.renew()
}

// invalidate makes the programs query the kernel again for all backends.
func (w *RouteWatch) invalidate() error {
	w.version += versionStep
	return w.variables.RoutesVersion.Set(w.version)
}

// renew extends the time for which the programs rely on the watch.
func (w *RouteWatch) renew() error {
	return w.variables.RoutesWatched.Set(uint64(clock.Now() + routesLease))
}

// neighbors are the MAC addresses of valid neighbors as last reported, empty for others.
// The kernel also reports each confirmation of a neighbor.
type neighbors map[neighbor]string

type neighbor struct {
	link int
	addr netip.Addr
}

const (
	maxNeighbors = 1 << 16
	nudValid     = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY
)

// changes reports whether a message is about a change that a next hop may depend on.
func (n neighbors) changes(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_GETNEIGH:
		return false
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
	default:
		return true
	}
	now, err := netlink.NeighDeserialize(m.Data)
	if err != nil {
		return true
	}
	if now.Family == unix.AF_BRIDGE {
		return false
	}
	addr, _ := netip.AddrFromSlice(now.IP)
	key, mac := neighbor{now.LinkIndex, addr}, ""
	if m.Header.Type == unix.RTM_NEWNEIGH && now.State&nudValid != 0 {
		mac = string(now.HardwareAddr)
	}
	before, known := n[key]
	if len(n) >= maxNeighbors {
		clear(n)
	}
	n[key] = mac
	if m.Header.Type == unix.RTM_DELNEIGH {
		delete(n, key)
	}
	return !known || before != mac
}
