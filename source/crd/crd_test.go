package crd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

func selecting(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func TestParseNamesAllThatIsWrong(t *testing.T) {
	p := v1alpha1.AddressPool{}
	p.Spec.Addresses = []v1alpha1.AddressRange{"10.1.1.0/24", "10.1.2.9-10.1.2.1"}
	p.Spec.Reserved = []v1alpha1.AddressRange{"x"}
	p.Spec.ServiceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	_, err := ParsePool(&p)
	for _, want := range []string{"spec.addresses[1]: \"10.1.2.9-10.1.2.1\" ends before it begins", "spec.reserved[0]: ", "spec.serviceSelector: "} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestBarred(t *testing.T) {
	of := func(change func(*v1alpha1.AddressPoolSpec)) Pool {
		p := v1alpha1.AddressPool{}
		change(&p.Spec)
		made, err := ParsePool(&p)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	team := map[string]string{"team": "a"}
	for _, c := range []struct {
		pool Pool
		want string
	}{
		{of(func(*v1alpha1.AddressPoolSpec) {}), ""},
		{of(func(s *v1alpha1.AddressPoolSpec) { s.Namespaces = []string{"shop"} }), ""},
		{of(func(s *v1alpha1.AddressPoolSpec) { s.Namespaces = []string{"other"} }), "is not for namespace shop"},
		{of(func(s *v1alpha1.AddressPoolSpec) { s.NamespaceSelector = selecting("team", "a") }), ""},
		{of(func(s *v1alpha1.AddressPoolSpec) { s.NamespaceSelector = selecting("team", "b") }), "is not for namespace shop"},
		{of(func(s *v1alpha1.AddressPoolSpec) {
			s.Namespaces, s.NamespaceSelector = []string{"shop"}, selecting("team", "b")
		}), ""},
		{of(func(s *v1alpha1.AddressPoolSpec) { s.ServiceSelector = selecting("tier", "gold") }), "is for Services with labels tier=gold"},
	} {
		if got := c.pool.Barred("shop", team, map[string]string{"tier": "tin"}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.pool, got, c.want)
		}
	}
}

func TestPeersOf(t *testing.T) {
	no := false
	peers := []*v1alpha1.BGPPeer{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.BGPPeerSpec{PeerAddress: "10.0.0.109", Port: 179, HoldTimeSeconds: 9}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.BGPPeerSpec{
			PeerAddress: "2001:db8::1", Port: 1179, PeerASN: 65000, PasswordSecretRef: "bgp", BFD: &v1alpha1.BFD{Enabled: &no}, NodeSelector: selecting("rack", "1"),
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.BGPPeerSpec{PeerAddress: "10.0.0.110", NodeSelector: selecting("rack", "2")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: v1alpha1.BGPPeerSpec{PeerAddress: "router"}},
	}
	got, err := PeersOf(peers, map[string]string{"rack": "1"})
	if fmt.Sprint(err) != `[{BGPPeer d spec.peerAddress: "router" is not an IP address}]` {
		t.Error(err)
	}
	want := []Peer{
		{Name: "a", Address: netip.MustParseAddrPort("10.0.0.109:179"), HoldTime: 9 * time.Second, BFD: true},
		{Name: "b", Address: netip.MustParseAddrPort("[2001:db8::1]:1179"), AS: 65000, PasswordSecretRef: "bgp"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPeerHasEverything(t *testing.T) {
	p := &v1alpha1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor"}, Spec: v1alpha1.BGPPeerSpec{
		PeerAddress: "fe80::1", Interface: "eth1", SourceAddress: "fe80::5", Port: 1179, PeerASN: 4200000001, PasswordSecretRef: "bgp", HoldTimeSeconds: 30,
		KeepaliveSeconds: 10, ConnectRetrySeconds: 5, TTLSecurity: 1, BFD: &v1alpha1.BFD{IntervalMilliseconds: 50, DetectMultiplier: 5},
	}}
	want := Peer{
		Name: "tor", Address: netip.AddrPortFrom(netip.MustParseAddr("fe80::1%eth1"), 1179), Interface: "eth1", Source: netip.MustParseAddr("fe80::5"),
		AS: 4200000001, PasswordSecretRef: "bgp", HoldTime: 30 * time.Second, Keepalive: 10 * time.Second, ConnectRetry: 5 * time.Second,
		TTLSecurity: 1, BFD: true, BFDInterval: 50 * time.Millisecond, BFDMultiplier: 5,
	}
	if got, err := ParsePeer(p); err != nil || got != want {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	p.Spec = v1alpha1.BGPPeerSpec{PeerAddress: "fe80::1%eth0", SourceAddress: "me", Port: 70000, PeerASN: 1 << 32, HoldTimeSeconds: -1, KeepaliveSeconds: 1 << 20,
		ConnectRetrySeconds: 4000, EBGPMultihop: 256, TTLSecurity: 255, BFD: &v1alpha1.BFD{IntervalMilliseconds: 60001, DetectMultiplier: 256}}
	_, err := ParsePeer(p)
	for _, field := range []string{"peerAddress", "sourceAddress", "port", "peerASN", "holdTimeSeconds", "keepaliveSeconds", "connectRetrySeconds", "ebgpMultihop",
		"ttlSecurity", "bfd.intervalMilliseconds", "bfd.detectMultiplier"} {
		if !strings.Contains(fmt.Sprint(err), "spec."+field+": ") {
			t.Errorf("%v lacks spec.%s", err, field)
		}
	}
}

// TestOfferHasEverything checks that the fields of an Advertisement reach the offer.
func TestOfferHasEverything(t *testing.T) {
	of := func(s v1alpha1.AdvertisementSpec, node map[string]string, policy bool) (route.Offer, error) {
		t.Helper()
		a, wrong := AdvertisedBy([]*v1alpha1.Advertisement{{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: s}}, nil, node)
		if len(wrong) > 0 {
			return route.Offer{}, wrong[0].Err
		}
		offers, why := a.Offers(&service.Service{LocalPolicy: policy}, netip.MustParseAddr("10.1.1.7"))
		if len(offers) != 1 {
			t.Fatalf("offers %v: %s", offers, why)
		}
		return offers[0], nil
	}
	plain := route.Offer{By: "Advertisement edge", Prefix: netip.MustParsePrefix("10.1.1.7/32")}
	with := func(change func(*route.Offer)) route.Offer {
		o := plain
		change(&o)
		return o
	}
	three := map[string]string{v1alpha1.LabelWeight: "3"}
	for _, c := range []struct {
		spec   v1alpha1.AdvertisementSpec
		node   map[string]string
		policy bool
		want   route.Offer
	}{
		{v1alpha1.AdvertisementSpec{}, three, true, plain},
		{v1alpha1.AdvertisementSpec{Peers: []string{"tor-2", "tor-1"}, Communities: []v1alpha1.CommunityText{"no-export", "65000:1", "1:2:3"}, LocalPreference: 200, MED: 1<<32 - 1,
			ASPathPrepend: 2, MinHealthyBackends: 4}, nil, false, with(func(o *route.Offer) {
			o.Attributes = route.Attributes{Communities: "65000:1 no-export 1:2:3", LocalPreference: 200, MED: 1<<32 - 1, ASPathPrepend: 2, Peers: "tor-1 tor-2"}
			o.MinHealthyBackends = 4
		})},
		{v1alpha1.AdvertisementSpec{Mode: v1alpha1.ModeLayer2}, nil, false, with(func(o *route.Offer) { o.Mode = route.ModeLayer2 })},
		{v1alpha1.AdvertisementSpec{Mode: v1alpha1.ModeAny}, nil, false, plain},
		{v1alpha1.AdvertisementSpec{TrafficPolicy: v1alpha1.TrafficPolicyLocal}, nil, false, with(func(o *route.Offer) { o.Local = true })},
		{v1alpha1.AdvertisementSpec{TrafficPolicy: v1alpha1.TrafficPolicyFromService}, nil, false, plain},
		{v1alpha1.AdvertisementSpec{TrafficPolicy: v1alpha1.TrafficPolicyFromService}, nil, true, with(func(o *route.Offer) { o.Local = true })},
		{v1alpha1.AdvertisementSpec{WeightBy: v1alpha1.WeightByEndpoints}, three, false, with(func(o *route.Offer) { o.WeightBy = route.WeightByEndpoints })},
		{v1alpha1.AdvertisementSpec{WeightBy: v1alpha1.WeightByNode}, three, false, with(func(o *route.Offer) { o.WeightBy, o.Weight = route.WeightByNode, 3 })},
		{v1alpha1.AdvertisementSpec{WeightBy: v1alpha1.WeightByNode}, nil, false, with(func(o *route.Offer) { o.WeightBy = route.WeightByNode })},
	} {
		if got, err := of(c.spec, c.node, c.policy); err != nil || got != c.want {
			t.Errorf("%+v: got %+v, %v, want %+v", c.spec, got, err, c.want)
		}
	}
	_, err := of(v1alpha1.AdvertisementSpec{Peers: []string{"a b"}, Communities: []v1alpha1.CommunityText{"1:1", "x"}, LocalPreference: -1, MED: 1 << 32, ASPathPrepend: 11,
		MinHealthyBackends: -1, TrafficPolicy: "Near", WeightBy: "Heavy", AggregationLengthV6: 129, Mode: "Smoke"}, nil, false)
	for _, field := range []string{"peers[0]", "communities[1]", "localPreference", "med", "asPathPrepend", "minHealthyBackends", "trafficPolicy", "weightBy", "aggregationLengthV6", "mode"} {
		if !strings.Contains(fmt.Sprint(err), "spec."+field+": ") {
			t.Errorf("%v lacks spec.%s", err, field)
		}
	}
}

func TestAdvertised(t *testing.T) {
	named := func(name string, s v1alpha1.AdvertisementSpec) *v1alpha1.Advertisement {
		return &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: s}
	}
	all := []*v1alpha1.Advertisement{
		named("c", v1alpha1.AdvertisementSpec{NodeSelector: selecting("rack", "1"), AggregationLength: 16}),
		named("a", v1alpha1.AdvertisementSpec{Pools: []string{"web"}, AggregationLength: 24, AggregationLengthV6: 64}),
		named("b", v1alpha1.AdvertisementSpec{Pools: []string{"web"}, ServiceSelector: selecting("tier", "gold"), AggregationLength: 32}),
	}
	pool := func(name string, age int, ranges ...v1alpha1.AddressRange) *v1alpha1.AddressPool {
		p := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(1000-age), 0)}}
		p.Spec.Addresses = ranges
		return p
	}
	pools := []*v1alpha1.AddressPool{
		pool("all", 1, "10.0.0.0/8"), pool("web", 3, "10.1.1.0/24", "x", "2001:db8::/64"), pool("mail", 2, "10.1.2.5-10.1.2.9"),
	}
	rack, gold := map[string]string{"rack": "1"}, map[string]string{"tier": "gold"}
	bad := named("bad", v1alpha1.AdvertisementSpec{AggregationLength: 40, ServiceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}})
	for _, c := range []struct {
		all             []*v1alpha1.Advertisement
		vip             string
		node, ofService map[string]string
		want            string
	}{
		{all, "10.1.1.7", nil, nil, "[10.1.1.0/24]"},
		{all, "2001:db8::7", nil, nil, "[2001:db8::/64]"},
		{all, "10.1.1.7", nil, gold, "[10.1.1.0/24 10.1.1.7/32]"},
		{all, "10.1.2.7", rack, nil, "[10.1.0.0/16]"},
		{all, "10.1.1.7", rack, gold, "[10.1.1.0/24 10.1.1.7/32 10.1.0.0/16]"},
		{all, "10.1.2.7", nil, nil, "[]no Advertisement is for it on this node: c is for nodes with labels rack=1; " +
			"a is for addresses of pools web, and this one is of mail; b is for addresses of pools web, and this one is of mail"},
		{all[1:2], "192.0.2.1", nil, nil, "[]no Advertisement is for it on this node: a is for addresses of pools web, and this one is of none"},
		{[]*v1alpha1.Advertisement{named("d", v1alpha1.AdvertisementSpec{ServiceSelector: selecting("tier", "gold")})}, "10.1.1.7", nil, nil,
			"[]no Advertisement is for it on this node: d is for Services with labels tier=gold"},
		{[]*v1alpha1.Advertisement{named("e", v1alpha1.AdvertisementSpec{})}, "192.0.2.1", nil, nil, "[192.0.2.1/32]"},
		{[]*v1alpha1.Advertisement{bad}, "10.1.1.7", nil, nil, "[]no Advertisement is for it on this node: bad is refused"},
	} {
		a, wrong := AdvertisedBy(c.all, pools, c.node)
		offers, why := a.Offers(&service.Service{Labels: c.ofService}, netip.MustParseAddr(c.vip))
		var got []netip.Prefix
		for _, o := range offers {
			got = append(got, o.Prefix)
		}
		if fmt.Sprint(got)+why != c.want {
			t.Errorf("%s: %v %s, want %s", c.vip, got, why, c.want)
		}
		if isBad := c.all[0] == bad; isBad != (len(wrong) == 1) {
			t.Errorf("%s: %v is left out", c.vip, wrong)
		} else if isBad && (!strings.Contains(fmt.Sprint(wrong), "spec.serviceSelector: ") ||
			!strings.Contains(fmt.Sprint(wrong), "spec.aggregationLength: 40 is not between 1 and 32")) {
			t.Errorf("%v lacks a field", wrong)
		}
	}
	if a, wrong := AdvertisedBy(nil, pools, nil); a != nil || wrong != nil {
		t.Errorf("no Advertisements are %v, %v; want nil", a, wrong)
	}
}

// TestAddressesBeyond checks that external and cluster addresses are advertised only on
// request.
func TestAddressesBeyond(t *testing.T) {
	named := func(name string, s v1alpha1.AdvertisementSpec) *v1alpha1.Advertisement {
		return &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: s}
	}
	plain := named("plain", v1alpha1.AdvertisementSpec{})
	cluster := named("cluster", v1alpha1.AdvertisementSpec{Addresses: []v1alpha1.AddressKind{v1alpha1.AddressClusterIP}, ServiceSelector: selecting("tier", "gold"),
		TrafficPolicy: v1alpha1.TrafficPolicyFromService, NodeSelector: selecting("rack", "9")})
	all := named("all", v1alpha1.AdvertisementSpec{Addresses: []v1alpha1.AddressKind{v1alpha1.AddressLoadBalancerIP, v1alpha1.AddressExternalIP, v1alpha1.AddressClusterIP}})
	wrong := named("wrong", v1alpha1.AdvertisementSpec{Addresses: []v1alpha1.AddressKind{v1alpha1.AddressClusterIP, "Node"}})
	gold := map[string]string{"tier": "gold"}
	for _, c := range []struct {
		of   []*v1alpha1.Advertisement
		want string
	}{
		{nil, "false false"}, {[]*v1alpha1.Advertisement{plain, wrong}, "false false"}, {[]*v1alpha1.Advertisement{plain, cluster}, "false true"}, {[]*v1alpha1.Advertisement{all}, "true true"},
	} {
		external, cluster := BeyondOf(c.of).Kinds(gold)
		if got := fmt.Sprint(external, " ", cluster); got != c.want {
			t.Errorf("%d Advertisements: %s, want %s", len(c.of), got, c.want)
		}
	}
	if _, yes := BeyondOf([]*v1alpha1.Advertisement{cluster}).Kinds(nil); yes {
		t.Error("the selector does not count")
	}
	if !BeyondOf([]*v1alpha1.Advertisement{cluster, plain}).Equal(BeyondOf([]*v1alpha1.Advertisement{cluster})) || BeyondOf([]*v1alpha1.Advertisement{cluster}).Equal(BeyondOf([]*v1alpha1.Advertisement{all})) {
		t.Error("what is equal is not known")
	}
	s := &service.Service{Labels: gold, LocalPolicyCluster: true}
	for i, kind := range []service.AddressKind{service.LoadBalancerAddress, service.ExternalAddress, service.ClusterAddress} {
		s.Frontends = append(s.Frontends, service.Frontend{Key: service.Key{VIP: netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), Port: 80}, Kind: kind})
	}
	a, out := AdvertisedBy([]*v1alpha1.Advertisement{plain, cluster, wrong}, nil, map[string]string{"rack": "9"})
	if fmt.Sprint(out) != `[{Advertisement wrong spec.addresses: "Node" is none of LoadBalancerIP, ExternalIP and ClusterIP}]` {
		t.Error(out)
	}
	want := []string{
		"Advertisement plain, local false", "no Advertisement is for it on this node: wrong is refused; " +
			"cluster is for ClusterIP addresses (addresses), and this one is ExternalIP; plain is for LoadBalancerIP addresses (addresses), and this one is ExternalIP",
		"Advertisement cluster, local true",
	}
	for i, f := range s.Frontends {
		offers, got := a.Offers(s, f.VIP)
		for _, o := range offers {
			got += fmt.Sprintf("%s, local %v", o.By, o.Local)
		}
		if got != want[i] {
			t.Errorf("%s: %s, want %s", f.Kind, got, want[i])
		}
	}
}
