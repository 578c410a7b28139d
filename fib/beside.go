package fib

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/announce"
)

// DefaultBesideMetric is below what FRR (20) and BIRD (32) give their routes.
const DefaultBesideMetric = 10

// besideCoalesce gathers the messages of one change.
const besideCoalesce = time.Millisecond

// Beside holds, beside each route of another routing daemon that has several
// next hops, one to the same prefix over a resilient group of the same next
// hops, which the kernel prefers for its lower metric. The daemon's own routes
// are never touched: once ours is gone, packets take those.
//
// Ours carry the protocol of BGP daemons, which FRR takes for one of its own and
// leaves alone (any other it would learn, and prefer to its BGP routes), and
// which BIRD, whose number is another, does not look at.
type Beside struct {
	// Protocols are the numbers that the daemon gives its routes.
	Protocols []uint8
	// Accept are the prefixes within which routes are followed; none: all.
	// Default routes are never.
	Accept []netip.Prefix
}

// Follow keeps the table in step with the daemon's routes until ctx ends.
func (t *Table) Follow(ctx context.Context, b Beside) error {
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
	tick := time.NewTicker(resyncEvery)
	defer tick.Stop()
	for {
		if err := t.follow(b); err != nil {
			t.c.Log.Warn("not all routes are resilient; tried again at the next change", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			done <- nil
			return err
		case <-kick:
			time.Sleep(besideCoalesce)
		case <-tick.C:
			t.forget()
		}
	}
}

// receive kicks at each message of the kernel; those that were lost are one, too.
// What goes, or a link that changes, may take something of ours along.
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
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

func takesAway(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_DELROUTE, unix.RTM_DELNEXTHOP, unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return true
	}
	return false
}

// forget has the kernel read anew before the next write.
func (t *Table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = nil
}

func (t *Table) follow(b Beside) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wishes, refused, err := t.plainRoutes(b)
	if err != nil {
		t.failed = err
		return fmt.Errorf("fib: %w", err)
	}
	err = t.set(wishes)
	t.failed = errors.Join(t.failed, refused)
	return errors.Join(err, refused)
}

// plainRoutes lists the daemon's routes that have several next hops.
func (t *Table) plainRoutes(b Beside) (wishes []wish, refused, err error) {
	var refusals []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		filter := &netlink.Route{Table: int(t.c.Table)}
		all, err := t.handle.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range all {
			w, ok := b.wish(r)
			switch {
			case !ok || r.Priority == int(t.c.Metric):
			case r.Priority < int(t.c.Metric):
				refusals = append(refusals, fmt.Errorf("%s: its metric %d is below ours, %d: give a lower --metric, or the daemon's routes a higher one", w.Prefix, r.Priority, t.c.Metric))
			default:
				wishes = append(wishes, w)
			}
		}
	}
	return wishes, errors.Join(refusals...), nil
}

func (b Beside) wish(r netlink.Route) (wish, bool) {
	if !slices.Contains(b.Protocols, uint8(r.Protocol)) || len(r.MultiPath) < 2 || r.Dst == nil || r.Type != unix.RTN_UNICAST {
		return wish{}, false
	}
	addr, _ := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	w := wish{RouteSet: announce.RouteSet{Prefix: netip.PrefixFrom(addr.Unmap(), bits)}}
	inside := func(p netip.Prefix) bool { return p.Bits() <= bits && p.Contains(w.Prefix.Addr()) }
	if bits == 0 || len(b.Accept) > 0 && !slices.ContainsFunc(b.Accept, inside) {
		return wish{}, false
	}
	hops := slices.SortedFunc(slices.Values(r.MultiPath), func(a, b *netlink.NexthopInfo) int {
		return cmp.Or(slices.Compare(a.Gw, b.Gw), cmp.Compare(a.LinkIndex, b.LinkIndex))
	})
	even := true
	for _, h := range hops {
		gateway, ok := netip.AddrFromSlice(h.Gw)
		if !ok || h.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0 {
			continue
		}
		w.NextHops, w.devices = append(w.NextHops, gateway.Unmap()), append(w.devices, h.LinkIndex)
		w.Weights = append(w.Weights, h.Hops+1)
		even = even && h.Hops == hops[0].Hops
	}
	if even {
		w.Weights = nil
	}
	return w, len(w.NextHops) > 1
}
