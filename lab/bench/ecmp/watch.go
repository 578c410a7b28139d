package ecmp

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/netns"
)

// watch hears what the router's kernel says of its routes (rtnetlink). The kernel
// tells of a route, too, when the group of next hops changes that it leads to.
type watch struct {
	prefix netip.Prefix
	kick   chan struct{}
	quit   chan struct{}
	heard  sync.WaitGroup
	// changes counts the times that the route to prefix became another one.
	changes atomic.Int64
}

func newWatch(ns *netns.NS, prefix netip.Prefix) (*watch, error) {
	w := &watch{prefix: prefix, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	updates, at := make(chan netlink.RouteUpdate, 256), vnetns.NsHandle(ns.FD())
	err := netlink.RouteSubscribeWithOptions(updates, w.quit, netlink.RouteSubscribeOptions{
		Namespace: &at, ListExisting: true, ReceiveBufferSize: 4 << 20, ReceiveBufferForceSize: true,
	})
	if err != nil {
		return nil, err
	}
	w.heard.Go(func() {
		var last []netip.Addr
		for u := range updates {
			if u.Dst == nil || u.Dst.String() != w.prefix.String() {
				continue
			}
			var now []netip.Addr
			if u.Type == unix.RTM_NEWROUTE {
				now = cluster.Hops(u.Route)
			}
			if !slices.Equal(last, now) {
				w.changes.Add(1)
			}
			last = now
			select {
			case w.kick <- struct{}{}:
			default:
			}
		}
	})
	return w, nil
}

func (w *watch) close() {
	close(w.quit)
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
