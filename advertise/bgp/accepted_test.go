package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/lab/testkit/growth"
)

func hostPrefix(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{40, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}

// Applying changes one after the other yields the same as the complete table.
func TestAcceptedRoutesMatchTheTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	accept := []netip.Prefix{netip.MustParsePrefix("40.0.0.0/26")}
	table, step := map[netip.Prefix]advertise.RouteSet{}, accepted{accept: accept, rejected: map[netip.Prefix]string{}}
	for round := range 300 {
		var changed []netip.Prefix
		var sets []advertise.RouteSet
		for _, i := range random.Perm(100)[:random.IntN(30)] {
			p := hostPrefix(i)
			changed = append(changed, p)
			delete(table, p)
			if random.IntN(2) == 0 {
				table[p] = advertise.RouteSet{Prefix: p, NextHops: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(round)})}}
				sets = append(sets, table[p])
			}
		}
		byPrefix := func(a, b advertise.RouteSet) int { return a.Prefix.Compare(b.Prefix) }
		slices.SortFunc(sets, byPrefix)
		step.some(changed, sets)
		var rows []advertise.RouteSet
		for _, s := range table {
			rows = append(rows, s)
		}
		slices.SortFunc(rows, byPrefix)
		whole := accepted{accept: accept}
		whole.all(rows)
		if got, want := fmt.Sprint(step.sets, step.rejected), fmt.Sprint(whole.sets, whole.rejected); got != want {
			t.Fatalf("round %d:\n got %s\nwant %s", round, got, want)
		}
	}
}

// A flood of changing routes takes time linear in their number.
func TestAcceptedRoutesGrowth(t *testing.T) {
	growth.Linear(t, 10000, func(n int) func() {
		prefixes, sets := make([]netip.Prefix, n), make([]advertise.RouteSet, n)
		for i := range n {
			prefixes[i] = hostPrefix(i)
			sets[i] = advertise.RouteSet{Prefix: prefixes[i]}
		}
		return func() {
			h := accepted{rejected: map[netip.Prefix]string{}}
			h.some(prefixes, slices.Clone(sets))
			h.some(prefixes, nil)
		}
	})
}

// TestAcceptedRoutesBitByBit makes random changes and compares the incremental result with the
// complete table.
func TestAcceptedRoutesBitByBit(t *testing.T) {
	accept := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/16")}
	names := []string{"10.1.1.0/24", "10.1.2.3/32", "10.2.0.0/16", "10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00:1::/64", "fe00::/16"}
	table := map[netip.Prefix]advertise.RouteSet{}
	whole := func() (sets []advertise.RouteSet) {
		for _, s := range table {
			sets = append(sets, s)
		}
		slices.SortFunc(sets, func(a, b advertise.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
		return sets
	}
	follows, twin := accepted{accept: accept}, accepted{accept: accept}
	follows.all(nil)
	for range 500 {
		var changed []netip.Prefix
		var now []advertise.RouteSet
		for _, n := range names {
			if p := netip.MustParsePrefix(n); rand.IntN(3) == 0 {
				changed = append(changed, p)
				if delete(table, p); rand.IntN(3) > 0 {
					table[p] = advertise.RouteSet{Prefix: p, Weights: []int{rand.IntN(9)}}
					now = append(now, table[p])
				}
			}
		}
		follows.some(changed, now)
		twin.all(whole())
		if !slices.EqualFunc(follows.sets, twin.sets, advertise.RouteSet.Equal) || !reflect.DeepEqual(follows.rejected, twin.rejected) {
			t.Fatalf("after %v: followed %+v, %v; whole %+v, %v", changed, follows.sets, follows.rejected, twin.sets, twin.rejected)
		}
	}
	follows.some(nil, []advertise.RouteSet{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("10.2.0.0/16")}})
	if why := follows.rejected[netip.MustParsePrefix("0.0.0.0/0")]; !strings.Contains(why, "default route") {
		t.Errorf("the default route is refused: %q", why)
	}
	if why := follows.rejected[netip.MustParsePrefix("10.2.0.0/16")]; why != "it is outside --accept-prefixes 10.1.0.0/16, fd00::/16" {
		t.Errorf("a prefix outside is refused: %q", why)
	}
}
