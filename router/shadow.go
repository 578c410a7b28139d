package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/wake"
)

// DefaultShadowMetric is lower than the metrics of FRR (20) and BIRD (32).
const DefaultShadowMetric = 10

// shadowCoalesce is how long the messages of one change are collected.
const shadowCoalesce = time.Millisecond

// Shadow configures shadow routes: for each route of another routing daemon with several
// next hops, the table has one to the same prefix over a resilient group of the same next
// hops, which the kernel prefers because of its lower metric. The daemon's own routes are
// never touched: once ours is gone, packets use those.
//
// Ours have the protocol number of BGP daemons. FRR considers such routes its own and
// ignores them (any other it would learn, and prefer over its BGP routes). BIRD has a
// different number and ignores them.
type Shadow struct {
	// Protocols are the protocol numbers of the daemon's routes.
	Protocols []uint8
	// Accept lists the prefixes within which routes are followed; empty: all. Default
	// routes are never followed.
	Accept []netip.Prefix
}

// Follow keeps the table in line with the daemon's routes until ctx is canceled.
func (t *Table) Follow(ctx context.Context, b Shadow) error {
	ns := netns.None()
	if t.c.NetNS != 0 {
		ns = netns.NsHandle(t.c.NetNS)
	}
	events, err := nl.SubscribeAt(ns, netns.None(), unix.NETLINK_ROUTE,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_LINK)
	if err != nil {
		return fmt.Errorf("fib: watch routes: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	kick, done := make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- t.receive(ctx, events, kick) }()
	defer func() { cancel(); <-done }()
	context.AfterFunc(ctx, events.Close)
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		_ = t.follow(b) // logs and retries failures
		retry.Reset(t.nextRetry(time.Now(), resyncEvery))
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			done <- nil
			return err
		case <-kick:
			time.Sleep(shadowCoalesce)
		case <-retry.C:
			t.forget()
		}
	}
}

// receive sends to kick for each message of the kernel, and if messages were lost. A
// removed object, or a link that changes, may affect our routes.
func (t *Table) receive(ctx context.Context, events *nl.NetlinkSocket, kick chan<- struct{}) error {
	for {
		msgs, _, err := events.Receive()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("fib: watch routes: %w", err)
		}
		if err != nil || slices.ContainsFunc(msgs, takesAway) {
			t.forget()
		}
		wake.Up(kick)
	}
}

func takesAway(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_DELROUTE, unix.RTM_DELNEXTHOP, unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return true
	}
	return false
}

// forget makes the next write read the kernel from scratch.
func (t *Table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = nil
}

func (t *Table) follow(b Shadow) error {
	defer t.rounds.Begin("routes")()
	t.mu.Lock()
	defer t.mu.Unlock()
	routes, hidden, err := t.plainRoutes(b)
	if err != nil {
		t.settleFailed(err)
		return fmt.Errorf("fib: %w", err)
	}
	for p, err := range hidden {
		if was := t.hidden[p]; was == nil || was.Error() != err.Error() {
			t.c.Log.Warn("route left to the routing daemon", "prefix", p, slog.Any("error", err))
		}
	}
	t.hidden = hidden
	return t.set(routes)
}

// plainRoutes lists the daemon's routes with several next hops, and those that ours
// cannot shadow.
func (t *Table) plainRoutes(b Shadow) (routes []desiredRoute, hidden map[netip.Prefix]error, err error) {
	hidden = map[netip.Prefix]error{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		filter := &netlink.Route{Table: int(t.c.Table)}
		all, err := netlist.Whole(func() ([]netlink.Route, error) {
			return t.handle.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE)
		})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range all {
			w, ok := b.follows(r)
			if !ok || r.Priority == int(t.c.Metric) {
				continue
			}
			if r.Priority < int(t.c.Metric) {
				hidden[w.Prefix] = fmt.Errorf("its metric %d is below --metric %d: use a lower --metric, or a higher metric in the daemon", r.Priority, t.c.Metric)
				continue
			}
			alive, err := w.addHops(r.MultiPath)
			switch {
			case err != nil:
				hidden[w.Prefix] = err
			case alive > 1:
				routes = append(routes, w)
			}
		}
	}
	return routes, hidden, nil
}

// follows reports whether a route is to be shadowed, and returns its prefix.
func (b Shadow) follows(r netlink.Route) (desiredRoute, bool) {
	if !slices.Contains(b.Protocols, uint8(r.Protocol)) || len(r.MultiPath) < 2 || r.Dst == nil || r.Type != unix.RTN_UNICAST {
		return desiredRoute{}, false
	}
	addr, _ := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	w := desiredRoute{RouteSet: advertise.RouteSet{Prefix: netip.PrefixFrom(addr.Unmap(), bits)}}
	inside := func(p netip.Prefix) bool { return p.Bits() <= bits && p.Contains(w.Prefix.Addr()) }
	return w, bits > 0 && (len(b.Accept) == 0 || slices.ContainsFunc(b.Accept, inside))
}

// addHops copies the next hops of a route that have a link, and returns their number. A
// route with a next hop without a gateway cannot be shadowed: the other next hops would
// get its share.
func (w *desiredRoute) addHops(path []*netlink.NexthopInfo) (alive int, err error) {
	hops := slices.SortedFunc(slices.Values(path), func(a, b *netlink.NexthopInfo) int {
		return cmp.Or(gateway(a.Gw, a.Via).Compare(gateway(b.Gw, b.Via)), cmp.Compare(a.LinkIndex, b.LinkIndex))
	})
	even := true
	for _, h := range hops {
		if !hasLink(h) {
			continue
		}
		gw := gateway(h.Gw, h.Via)
		if !gw.IsValid() {
			return 0, errors.New("a next hop has no gateway: only routes through gateways can be shadowed")
		}
		w.NextHops, w.links = append(w.NextHops, gw), append(w.links, link{h.LinkIndex, h.Flags&unix.RTNH_F_ONLINK != 0})
		w.Weights = append(w.Weights, h.Hops+1)
		even = even && h.Hops == hops[0].Hops
	}
	if even {
		w.Weights = nil
	}
	return len(w.NextHops), nil
}
