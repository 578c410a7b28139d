package router

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/advertise"
)

func weighted(prefix string, of map[string]int) advertise.RouteSet {
	set := advertise.RouteSet{Prefix: netip.MustParsePrefix(prefix)}
	for a := range of {
		set.NextHops = append(set.NextHops, netip.MustParseAddr(a))
	}
	slices.SortFunc(set.NextHops, netip.Addr.Compare)
	for _, a := range set.NextHops {
		set.Weights = append(set.Weights, of[a.String()])
	}
	return set
}

func TestWeightsDivideTheBuckets(t *testing.T) {
	table := open(t, nodes(t))
	defer table.Close(true)
	shares := func(of map[string]int) map[string]int {
		t.Helper()
		if err := table.Set([]advertise.RouteSet{weighted("10.1.1.0/24", of)}); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, nh := range mustBuckets(t, table) {
			count[nh.String()]++
		}
		return count
	}
	got := shares(map[string]int{"10.0.0.104": 1, "10.0.0.105": 3})
	if want := map[string]int{"10.0.0.104": 128, "10.0.0.105": 384}; !reflect.DeepEqual(got, want) {
		t.Errorf("buckets of weights 1 and 3: %v, want %v", got, want)
	}
	if text := shown(t, table); !strings.Contains(text, "via 10.0.0.105 dev eth0 weight 3\n") {
		t.Errorf("ip route would show\n%s", text)
	}
	before := mustBuckets(t, table)
	shares(map[string]int{"10.0.0.104": 1, "10.0.0.105": 3})
	if !slices.Equal(before, mustBuckets(t, table)) {
		t.Error("the same weights again moved buckets")
	}
	got = shares(map[string]int{"10.0.0.104": 1, "10.0.0.105": 2, "10.0.0.106": 1})
	if want := map[string]int{"10.0.0.104": 128, "10.0.0.105": 256, "10.0.0.106": 128}; !reflect.DeepEqual(got, want) {
		t.Errorf("buckets of weights 1, 2 and 1: %v, want %v", got, want)
	}
	for i, nh := range mustBuckets(t, table) {
		if before[i] != nh && nh != netip.MustParseAddr("10.0.0.106") {
			t.Fatalf("bucket %d went from %s to %s, which has no new share", i, before[i], nh)
		}
	}
}

func TestWeightsBehindOneGatewayAddUp(t *testing.T) {
	members := []member{{weight: 512}, {weight: 256}, {weight: 1}}
	if bound(members); members[0].weight != 256 || members[1].weight != 128 || members[2].weight != 1 {
		t.Errorf("bounded to %v", members)
	}
}

// TestRememberedIsHeld makes random changes, and compares the cached state with the
// kernel's, and that with the desired one.
func TestRememberedIsHeld(t *testing.T) {
	table := open(t, nodes(t))
	defer table.Close(true)
	all := []string{"10.0.0.104", "10.0.0.105", "10.0.0.106", "10.0.0.107"}
	for round := range 60 {
		var sets []advertise.RouteSet
		alive := rand.Perm(len(all))[:1+rand.IntN(len(all))]
		for p := range 12 {
			of := map[string]int{}
			for _, i := range alive {
				if rand.IntN(5) > 0 {
					of[all[i]] = 1 + rand.IntN(2)
				}
			}
			if len(of) > 0 && rand.IntN(6) > 0 {
				sets = append(sets, weighted(fmt.Sprintf("10.1.%d.0/24", p), of))
			}
		}
		if err := table.Set(sets); err != nil {
			t.Fatal(err)
		}
		k, err := table.read()
		if err != nil {
			t.Fatal(err)
		}
		table.held.lowest, k.lowest = 0, 0
		if !reflect.DeepEqual(table.held, k) {
			t.Fatalf("round %d: remembered\n%+v\nheld\n%+v", round, table.held, k)
		}
		table.held.lowest = table.c.FirstID
		var want strings.Builder
		for _, s := range sets {
			fmt.Fprintln(&want, s.Prefix, s.NextHops, s.Weights)
		}
		if got := summary(t, table); got != want.String() {
			t.Fatalf("round %d: table is\n%swant\n%s", round, got, want.String())
		}
	}
}

func summary(t *testing.T, table *Table) string {
	t.Helper()
	routes, err := table.List()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range routes {
		var hops []netip.Addr
		var weights []int
		for _, h := range r.Hops {
			hops, weights = append(hops, h.Gateway), append(weights, h.Weight)
		}
		fmt.Fprintln(&b, r.Prefix, hops, weights)
	}
	return b.String()
}

// Objects that someone else removes are restored with the next change, at the latest.
func TestHealsWhatAnotherTookAway(t *testing.T) {
	table := open(t, nodes(t))
	defer table.Close(true)
	mustSet(t, table, "10.1.1.0/24 10.0.0.104 10.0.0.105", "10.1.2.0/24 10.0.0.104")
	for id := range table.held.groups {
		if err := table.deleteNexthop(id); err != nil {
			t.Fatal(err)
		}
	}
	mustSet(t, table, "10.1.1.0/24 10.0.0.104", "10.1.2.0/24 10.0.0.104 10.0.0.106")
	const want = "10.1.1.0/24 [10.0.0.104] [1]\n10.1.2.0/24 [10.0.0.104 10.0.0.106] [1 1]\n"
	if got := summary(t, table); got != want {
		t.Errorf("table is\n%swant\n%s", got, want)
	}
}

func TestDefaultRouteIsNoWay(t *testing.T) {
	l := nodes(t)
	table := open(t, l)
	defer table.Close(true)
	err := l.Host("router").Do(func() error {
		other, err := New(Config{Protocol: 4, FirstID: 1, Metric: 1})
		if err != nil {
			return err
		}
		defer other.Close(false)
		return other.Set(set("0.0.0.0/0 10.0.0.104"))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = table.Set(set("10.1.1.0/24 10.0.0.105 192.0.2.1"))
	if err == nil || !strings.Contains(err.Error(), "10.1.1.0/24: next hop 192.0.2.1: reachable by the default route only") {
		t.Errorf("error %v", err)
	}
	if got := summary(t, table); got != "10.1.1.0/24 [10.0.0.105] [1]\n" {
		t.Errorf("table is\n%s", got)
	}
}
