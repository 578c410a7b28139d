package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
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
