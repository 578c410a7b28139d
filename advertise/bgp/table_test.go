package bgp

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
)

func offers(list ...any) (out []offer) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, offer{netip.MustParseAddr(list[i].(string)), list[i+1].(float64)})
	}
	return out
}

func TestOffersBecomeShares(t *testing.T) {
	for _, c := range []struct {
		what   string
		offers []offer
		want   string
		uneven string
	}{
		{"sorted, each once", offers("10.0.0.106", 0.0, "10.0.0.105", 0.0, "10.0.0.106", 0.0), "10.1.1.0/24 10.0.0.105 10.0.0.106", ""},
		{"in proportion", offers("10.0.0.106", 3e9, "10.0.0.105", 1e9), "10.1.1.0/24 10.0.0.105*1 10.0.0.106*3", ""},
		{"all alike", offers("10.0.0.106", 1e9, "10.0.0.105", 1e9), "10.1.1.0/24 10.0.0.105 10.0.0.106", ""},
		{"one is missing", offers("10.0.0.106", 0.0, "10.0.0.105", 1e9), "10.1.1.0/24 10.0.0.105 10.0.0.106",
			"10.0.0.105 has a bandwidth and 10.0.0.106 does not: all next hops get equal shares"},
		{"two reflectors differ", offers("10.0.0.105", 1e9, "10.0.0.106", 1e9, "10.0.0.105", 2e9), "10.1.1.0/24 10.0.0.105*2 10.0.0.106*1", ""},
	} {
		set := fromOffers(service, c.offers)
		if got := show([]advertise.RouteSet{set}); got != c.want || set.Uneven != c.uneven {
			t.Errorf("%s: %s, %q; want %s, %q", c.what, got, set.Uneven, c.want, c.uneven)
		}
	}
}

// An UPDATE may have prefixes of both families, and therefore two next hops.
func TestNextHopOfEachFamily(t *testing.T) {
	four, err := pkt.NewPathAttributeNextHop(netip.MustParseAddr("10.0.0.105"))
	if err != nil {
		t.Fatal(err)
	}
	six := &pkt.PathAttributeMpReachNLRI{AFI: pkt.AFI_IP6, Nexthop: netip.MustParseAddr("fd00::105")}
	extended := &pkt.PathAttributeMpReachNLRI{AFI: pkt.AFI_IP, Nexthop: netip.MustParseAddr("fd00::106")}
	alone := &pkt.PathAttributeMpReachNLRI{AFI: pkt.AFI_IP6, Nexthop: netip.IPv6Unspecified(), LinkLocalNexthop: netip.MustParseAddr("fe80::105")}
	for _, c := range []struct {
		attrs []pkt.PathAttributeInterface
		v4    bool
		want  string
	}{
		{[]pkt.PathAttributeInterface{four, six}, true, "10.0.0.105"},
		{[]pkt.PathAttributeInterface{four, six}, false, "fd00::105"},
		{[]pkt.PathAttributeInterface{extended}, true, "fd00::106"},
		{[]pkt.PathAttributeInterface{alone}, false, "fe80::105"},
		{[]pkt.PathAttributeInterface{four}, false, "invalid IP"},
	} {
		if got := nextHop(c.attrs, c.v4); got.String() != c.want {
			t.Errorf("next hop (IPv4: %t) is %s, want %s", c.v4, got, c.want)
		}
	}
}

// The community in wire format, transitive (0x00) and not (0x40).
func TestBandwidthOfBothKinds(t *testing.T) {
	for _, wire := range [][]byte{
		{0x40, 0x04, 0xfd, 0xfd, 0x4c, 0xee, 0x6b, 0x28},
		{0x00, 0x04, 0xfd, 0xfd, 0x4c, 0xee, 0x6b, 0x28},
	} {
		c, err := pkt.ParseExtended(wire)
		if err != nil {
			t.Fatal(err)
		}
		list := pkt.NewPathAttributeExtendedCommunities([]pkt.ExtendedCommunityInterface{c})
		if got := offered([]pkt.PathAttributeInterface{list}); got != 125e6 {
			t.Errorf("bandwidth of %x is %f, want 125e6", wire, got)
		}
	}
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

func TestWeightsAndDrainsReachTheRouter(t *testing.T) {
	const port = 20194
	startReflector(t, port)
	_, changes := startRouter(t, port)
	one, two := startSpeaker(t, "127.21.1.1", port), startSpeaker(t, "127.21.1.2", port)
	until := func(want string) {
		t.Helper()
		late := time.After(20 * time.Second)
		for last := ""; last != want; {
			select {
			case sets := <-changes:
				last = show(sets)
			case <-late:
				t.Fatalf("the router holds %q, want %q", last, want)
			}
		}
	}
	say := func(s *Speaker, nextHop string, weight uint32, communities route.Communities) {
		t.Helper()
		r := routeVia(service, nextHop)
		r.Weight, r.Communities = weight, communities
		if err := s.Set([]route.Route{r}); err != nil {
			t.Fatal(err)
		}
	}
	say(one, "10.0.0.105", 1, "")
	say(two, "10.0.0.106", 3, "")
	until("10.1.1.0/24 10.0.0.105*1 10.0.0.106*3")
	say(two, "10.0.0.106", 1, "")
	until("10.1.1.0/24 10.0.0.105 10.0.0.106")
	say(two, "10.0.0.106", 1, "graceful-shutdown")
	until("10.1.1.0/24 10.0.0.105")
	say(one, "10.0.0.105", 1, "graceful-shutdown")
	until("10.1.1.0/24 10.0.0.105 10.0.0.106") // a draining load balancer is better than none
	say(two, "10.0.0.106", 1, "")
	until("10.1.1.0/24 10.0.0.106")
}
