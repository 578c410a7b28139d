package vdn

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var comparePlans = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func network(name, prefix string, reach ...string) Network {
	return Network{Name: name, Devices: []string{"eth1"}, Subnets: []Subnet{{CIDR: netip.MustParsePrefix(prefix)}}, PeerNetworks: reach}
}

func shared(name, prefix string, reach ...string) SharedNetwork {
	return SharedNetwork{Name: name, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}, PeerNetworks: reach}
}

func peerOf(domain string, networks ...SharedNetwork) PeerView {
	return PeerView{Peer: Peer{Domain: domain, URL: "https://x", NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, Networks: networks}
}

func TestPlanOfANodeAndOfAGateway(t *testing.T) {
	a, b := network("a", "10.1.0.0/24", "b", "busan/c", "gone"), network("b", "10.2.0.0/24", "a")
	a.GuaranteedRate, a.MaxRate, a.MaxRatePerHost = 4e8, 1e9, 1e8
	b.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	s := State{
		Revision: 7, Networks: []Network{a, b, network("lonely", "10.3.0.0/24", "a")},
		Slices: map[string]uint16{"a": 2, "b": 1, "lonely": 3, "busan/c": 4, "busan/d": 5, "old": 9},
		Peers:  Accept(nil, nil, []PeerView{peerOf("busan", shared("c", "10.9.0.0/24", "a"), shared("d", "10.8.0.0/24", "b"))}),
	}
	local := []Attachment{{ID: "y.eth0"}, {ID: "x.eth0"}}
	want := Plan{
		Revision: 7, Local: []Attachment{{ID: "x.eth0"}, {ID: "y.eth0"}},
		Slices: []Slice{
			{ID: 1, Name: "b", Prefixes: b.Prefixes(), PeerNetworks: []uint16{2}, AllowedCIDRs: b.AllowedCIDRs},
			{ID: 2, Name: "a", Prefixes: a.Prefixes(), GuaranteedRate: 4e8, MaxRate: 1e9, MaxRatePerHost: 1e8, PeerNetworks: []uint16{1, 4}},
			{ID: 3, Name: "lonely", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.3.0.0/24")}},
			{ID: 4, Name: "busan/c", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}, PeerNetworks: []uint16{2}},
			{ID: 5, Name: "busan/d", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/24")}}, // b does not name it
		},
	}
	if d := cmp.Diff(want, PlanFor(s, Node{}, local), comparePlans); d != "" {
		t.Errorf("a node, -want +got:\n%s", d)
	}
	via := netip.MustParseAddr("192.0.2.1")
	want.Routes = []Route{{netip.MustParsePrefix("10.8.0.0/24"), via}, {netip.MustParsePrefix("10.9.0.0/24"), via}}
	if d := cmp.Diff(want, PlanFor(s, Node{Gateway: true}, local), comparePlans); d != "" {
		t.Errorf("a gateway, -want +got:\n%s", d)
	}
}

func TestConflictsOfPeersAreNamed(t *testing.T) {
	own := []Network{network("a", "10.1.0.0/24")}
	zero := shared("zero", "0.0.0.0/0")
	six := shared("six", "fd00::/64")
	host := SharedNetwork{Name: "host", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/16")}}
	many := shared("many", "10.61.0.0/24")
	many.Prefixes = append(many.Prefixes, netip.MustParsePrefix("10.62.0.0/24"), netip.MustParsePrefix("10.63.0.0/24"))
	peers := []PeerView{
		peerOf("seoul", shared("first", "10.9.0.0/16"), shared("e", "10.30.0.0/16")),
		peerOf("busan", shared("c", "10.9.1.0/24"), shared("mine", "10.0.0.0/8"), zero, six, host, shared("C", "10.40.0.0/16"),
			shared("e", "10.50.0.0/16"), shared("e", "10.51.0.0/16"), SharedNetwork{Name: "none"}, shared("f", "10.60.0.0/16", "seoul/e"), many),
	}
	refused := func(before []PeerView) string {
		var lines []string
		for _, p := range Accept(own, before, peers) {
			for _, n := range p.Networks {
				if n.Refused != "" {
					lines = append(lines, n.Refused)
				}
			}
		}
		return strings.Join(lines, "\n")
	}
	wrong := []string{
		"network busan/mine, prefixes[0]: 10.0.0.0/8 overlaps 10.1.0.0/24 of network a: one of the two domains must use another",
		"network busan/zero, prefixes[0]: 0.0.0.0/0 contains all addresses: busan must share a longer prefix",
		"network busan/six, prefixes[0]: fd00::/64 has no next hop: add an address of its family to nextHops of peer busan",
		"network busan/host, prefixes[0]: 10.20.0.1/16 has host bits set: use 10.20.0.0/16",
		`network busan/C, name: "C" is not a DNS label: ` + labelWords,
		"network busan/e, name: is offered twice: busan must offer it once",
		"network busan/none, prefixes: is empty: busan must add a subnet",
		`network busan/f, peerNetworks[0]: "seoul/e" is not a network of this domain: busan must use its name without a domain`,
		"network busan/many, prefixes: has 3 entries: busan must split it into networks of at most one IPv4 and one IPv6 subnet",
	}
	fresh := strings.Join(append(append([]string{}, wrong...), "network seoul/first, prefixes[0]: 10.9.0.0/16 overlaps 10.9.1.0/24 of busan's network c: one of the two domains must use another"), "\n")
	if d := cmp.Diff(fresh, refused(nil)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// What was accepted before stays accepted.
	held := strings.Join(append([]string{"network busan/c, prefixes[0]: 10.9.1.0/24 overlaps 10.9.0.0/16 of seoul's network first: one of the two domains must use another"}, wrong...), "\n")
	if d := cmp.Diff(held, refused([]PeerView{peerOf("seoul", shared("first", "10.9.0.0/16"))})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	s := State{
		Domain: "here", Networks: []Network{network("a", "10.1.0.0/24"), network("b", "10.2.0.0/24")},
		Nodes: []Node{{Name: "n1", Uplinks: []Uplink{{"eth1", 500e6}}}},
		Peers: []PeerView{peerOf("busan", shared("c", "10.9.0.0/24"), SharedNetwork{Name: "no", Refused: "so", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.4.0.0/24")}})},
	}
	s.Networks[0].GuaranteedRate = 300e6
	guaranteed := func(rate Rate) Network {
		n := network("b", "10.2.0.0/24")
		n.GuaranteedRate = rate
		return n
	}
	here := network("x", "10.5.0.0/24")
	here.SharedWith = []string{"here"}
	for _, c := range []struct {
		network Network
		before  *Network
		want    string
	}{
		{network("x", "10.1.0.0/16"), nil, "network x, subnets[0].cidr: 10.1.0.0/16 overlaps 10.1.0.0/24 of network a: use another"},
		{network("x", "10.9.0.128/25"), nil, "10.9.0.128/25 overlaps 10.9.0.0/24 of busan's network c"},
		{network("x", "10.4.0.0/24"), nil, ""},
		{network("a", "10.1.0.0/25"), &s.Networks[0], ""},
		{here, nil, "sharedWith: here is this domain itself"},
		{guaranteed(200e6), nil, ""},
		{guaranteed(201e6), nil, "network b, guaranteedRate: 501M are guaranteed in total (a 300M, b 201M), but uplink eth1 of node n1 has a rate of 500M: lower guaranteedRate"},
		{guaranteed(201e6), &Network{GuaranteedRate: 900e6}, ""}, // too much, but less than before
	} {
		got := ""
		if err := c.network.Fits(c.before, s); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s %s: got %q, want %q", c.network.Name, c.network.GuaranteedRate, got, c.want)
		}
	}
}

func TestSlicesKeepTheirNumbers(t *testing.T) {
	known := map[string]uint16{"a": 1, "gone": 2, "c": 3}
	given, forgotten, err := NumberSlices(known, []string{"a", "d", "c", "e"}, func(n string) bool { return n == "gone" })
	if d := cmp.Diff(map[string]uint16{"d": 4, "e": 5}, given); d != "" || len(forgotten) > 0 || err != nil {
		t.Errorf("%v, %v, -want +got:\n%s", forgotten, err, d)
	}
	for i := 1; i <= MaxSlice; i++ {
		known[fmt.Sprint("n", i)] = uint16(i)
	}
	delete(known, "a")
	delete(known, "c")
	gone := func(n string) bool { return n == "n7" || n == "n5" }
	delete(known, "gone")
	given, forgotten, err = NumberSlices(known, []string{"x", "y"}, gone)
	if d := cmp.Diff(map[string]uint16{"x": 5, "y": 7}, given); d != "" || len(forgotten) != 2 || err != nil {
		t.Errorf("%v, %v, -want +got:\n%s", forgotten, err, d)
	}
	if _, _, err = NumberSlices(known, []string{"x", "y", "z"}, gone); err == nil || !strings.Contains(err.Error(), "all 65534 slice IDs are in use") {
		t.Errorf("got %v", err)
	}
}

func TestOfferListsSharedNetworks(t *testing.T) {
	a, b := network("a", "10.1.0.0/24", "busan/c", "seoul/d", "b"), network("b", "10.2.0.0/24")
	a.SharedWith = []string{"busan"}
	up := Attachment{Network: "a", Phase: Up, Owner: "x/y", Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")}}
	leased := Attachment{Network: "a", Phase: Leased, Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.8/24")}}
	s := State{Domain: "daejeon", Revision: 3, Networks: []Network{a, b}}
	want := Offer{Domain: "daejeon", Networks: []SharedNetwork{{
		Name: "a", Prefixes: a.Prefixes(), PeerNetworks: []string{"c"}, Hosts: []SharedHost{{"x/y", []netip.Addr{netip.MustParseAddr("10.1.0.7")}}},
	}}}
	if d := cmp.Diff(want, OfferFor(s, "busan", []Attachment{up, leased}), comparePlans); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if o := OfferFor(s, "seoul", []Attachment{up}); len(o.Networks) != 0 {
		t.Errorf("the offer for seoul is %+v", o)
	}
}
