package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/sleep"
)

// Delays of FollowNodeAddresses: addresses change in bursts, and missed changes are found
// by periodic reads.
const (
	settleNodes = 50 * time.Millisecond
	relookNodes = 30 * time.Second
)

// NodeAddresses returns the addresses of the calling thread's network namespace on which
// node ports are served: those in ranges or, without ranges, all. Loopback is served
// implicitly, and link-local addresses are excluded, because they are not unique to the
// node.
func NodeAddresses(ranges []netip.Prefix) ([]netip.Addr, error) {
	list, err := netlist.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("the node's addresses: %w", err)
	}
	var all []netip.Addr
	for _, entry := range list {
		a, ok := netip.AddrFromSlice(entry.IP)
		if a = a.Unmap(); !ok || !a.IsGlobalUnicast() {
			continue
		}
		if len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// FollowNodeAddresses passes NodeAddresses to report, immediately and whenever they may
// have changed, until ctx ends. The calling goroutine must stay in its network namespace.
func FollowNodeAddresses(ctx context.Context, ranges []netip.Prefix, report func([]netip.Addr)) error {
	watch, err := devices.NewWatch(devices.All)
	if err != nil {
		return err
	}
	defer watch.Close()
	again := time.NewTicker(relookNodes)
	defer again.Stop()
	for {
		addresses, err := NodeAddresses(ranges)
		if err != nil {
			return err
		}
		report(addresses)
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-watch.Changed:
			if !sleep.For(ctx, settleNodes) {
				return nil
			}
		}
	}
}
