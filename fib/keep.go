package fib

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// resyncEvery heals what no event told of.
const resyncEvery = 10 * time.Second

// Keep holds the kernel to the last Set until ctx ends: when links and
// addresses change (the kernel drops the next hops of a link that goes down),
// and every ten seconds. Errors are logged; the next round tries again.
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
	tick := time.NewTicker(resyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-links:
			if !ok {
				links = nil
			}
		case _, ok := <-addrs:
			if !ok {
				addrs = nil
			}
		case <-tick.C:
		}
		if err := t.Resync(); err != nil {
			t.c.Log.Warn("the kernel's table is not as BGP wants it; tried again in a while", "error", err)
		}
	}
}
