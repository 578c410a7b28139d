package ecmp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink/nl"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// watch hears what the router's kernel says of its routes and next hops
// (rtnetlink), and looks at the table each time.
type watch struct {
	kick   chan struct{}
	events *nl.NetlinkSocket
	quit   atomic.Bool
	heard  sync.WaitGroup
	// changes counts the times that the table was another one.
	changes atomic.Int64
}

// newWatch watches a namespace; hops looks at the table.
func newWatch(ns *netns.NS, hops func() ([]string, error)) (*watch, error) {
	w := &watch{kick: make(chan struct{}, 1)}
	var err error
	w.events, err = nl.SubscribeAt(vnetns.NsHandle(ns.FD()), vnetns.None(), unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, err
	}
	last, err := hops()
	if err != nil {
		w.events.Close()
		return nil, err
	}
	w.heard.Go(func() {
		for {
			_, _, err := w.events.Receive()
			if w.quit.Load() || err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
				return
			}
			select {
			case w.kick <- struct{}{}:
			default:
			}
			now, err := hops()
			if err == nil && !slices.Equal(last, now) {
				w.changes.Add(1)
				last = now
			}
		}
	})
	return w, nil
}

func (w *watch) close() {
	w.quit.Store(true)
	w.events.Close()
	w.heard.Wait()
}

// fallBack is how often the kernel is asked though it said nothing.
const fallBack = 50 * time.Millisecond

// until asks whether the table is right now, and after each message of the kernel,
// and gives the time at which it was; false where it never was.
func (w *watch) until(ctx context.Context, within time.Duration, right func() bool) (time.Time, bool) {
	end := time.NewTimer(within)
	defer end.Stop()
	tick := time.NewTicker(fallBack)
	defer tick.Stop()
	for {
		if right() {
			return time.Now(), true
		}
		select {
		case <-w.kick:
		case <-tick.C:
		case <-end.C:
			return time.Time{}, false
		case <-ctx.Done():
			return time.Time{}, false
		}
	}
}
