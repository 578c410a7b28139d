package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/internal/testkit"
)

func TestFollowsNodeAddresses(t *testing.T) {
	d := open(t, config(t))
	served := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			var all []string
			for a := range maps.Keys(d.nodes) {
				all = append(all, fromAddr(a).String())
			}
			if slices.Sort(all); !slices.Equal(all, want) {
				return fmt.Errorf("node ports are served on %v, want %v", all, want)
			}
			return nil
		})
	}
	addAddress(t, "192.0.2.1")
	ctx, stop := context.WithCancel(t.Context())
	var follow errgroup.Group
	follow.Go(func() error {
		return d.FollowNodeAddresses(ctx, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.0/8")})
	})
	served("192.0.2.1")
	t.Run("one more", func(t *testing.T) {
		addAddress(t, "198.51.100.1")
		addAddress(t, "192.0.2.2")
		served("192.0.2.1", "192.0.2.2")
	})
	served("192.0.2.1")
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
