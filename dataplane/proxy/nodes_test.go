package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestFollowsNodeAddresses(t *testing.T) {
	var current atomic.Pointer[[]netip.Addr]
	is := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			var all []string
			if now := current.Load(); now != nil {
				for _, a := range *now {
					all = append(all, a.String())
				}
			}
			if !slices.Equal(all, want) {
				return fmt.Errorf("reported %v, want %v", all, want)
			}
			return nil
		})
	}
	addAddress(t, "192.0.2.1")
	ctx, stop := context.WithCancel(t.Context())
	var follow errgroup.Group
	follow.Go(func() error {
		ranges := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.0/8")}
		return FollowNodeAddresses(ctx, ranges, func(all []netip.Addr) { current.Store(&all) })
	})
	is("192.0.2.1")
	t.Run("two more", func(t *testing.T) {
		addAddress(t, "198.51.100.1")
		addAddress(t, "192.0.2.2")
		is("192.0.2.1", "192.0.2.2")
	})
	is("192.0.2.1")
	stop()
	if err := follow.Wait(); err != nil {
		t.Error(err)
	}
	addAddress(t, "198.51.100.1")
	all, err := NodeAddresses(nil)
	if want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v; want %v", all, err, want)
	}
}
