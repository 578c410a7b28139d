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

// watch subscribes to the router kernel's route and next hop events (rtnetlink), and
// reads the table after each event.
type watch struct {
	kick    chan struct{}
	events  *nl.NetlinkSocket
	quit    atomic.Bool
	reading sync.WaitGroup
	// changes counts the changes of the table.
	changes atomic.Int64
}

// newWatch watches a namespace. hops reads the table.
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
	w.reading.Go(func() {
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
	w.reading.Wait()
}

// fallBack is the interval at which the table is read without an event.
const fallBack = 50 * time.Millisecond

// until calls right immediately and after each kernel event, and returns the time at
// which it became true, or false if it did not within the limit.
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
