package router

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// resyncEvery is the interval of resyncs for changes that no event reported.
const resyncEvery = 10 * time.Second

// Keep keeps the kernel in line with the last Set until ctx is canceled: when links and
// addresses change (the kernel removes the next hops of a link that goes down), when a
// retry of a route is due, and every ten seconds.
func (t *Table) Keep(ctx context.Context) error {
	var at *netns.NsHandle
	if t.c.NetNS != 0 {
		h := netns.NsHandle(t.c.NetNS)
		at = &h
	}
	done := make(chan struct{})
	defer close(done)
	links := make(chan netlink.LinkUpdate, 64)
	addrs := make(chan netlink.AddrUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{Namespace: at}); err != nil {
		return fmt.Errorf("fib: watch links: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{Namespace: at}); err != nil {
		return fmt.Errorf("fib: watch addresses: %w", err)
	}
	last := time.Now()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		retry.Reset(t.nextRetry(time.Now(), time.Until(last.Add(resyncEvery))))
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
			continue
		case _, ok := <-links:
			if !ok {
				links = nil
			}
		case _, ok := <-addrs:
			if !ok {
				addrs = nil
			}
		case <-retry.C:
		}
		last = time.Now()
		_ = t.Resync() // logs and retries failures
	}
}
