package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/core/route"
)

// offer parses an offer of a node: "a 10.0.0.1 10.1.1.0/24 ...".
func offer(text string) cloud.Offer {
	words := strings.Fields(text)
	o := cloud.Offer{Node: words[0]}
	for _, p := range words[2:] {
		o.Routes = append(o.Routes, route.Route{Prefix: netip.MustParsePrefix(p), NextHop: netip.MustParseAddr(words[1])})
	}
	return o
}

func offers(texts ...string) (all []cloud.Offer) {
	for _, t := range texts {
		all = append(all, offer(t))
	}
	return all
}

func provider(t *testing.T, c Config) *Provider {
	t.Helper()
	c.Owner = "lab"
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var byTable = Config{RouteTables: []string{"rtb-1"}}

// does runs a Sync that must succeed, and reject the given prefixes.
func does(t *testing.T, p *Provider, of []cloud.Offer, refused ...string) {
	t.Helper()
	got, err := p.Sync(context.Background(), of)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(refused) {
		t.Errorf("refused: %s", got.Words())
	}
	for _, r := range refused {
		if !strings.Contains(got.Words(), r) {
			t.Errorf("refused: %s, want %s", got.Words(), r)
		}
	}
}

// fails runs a Sync that must return an error with these words.
func fails(t *testing.T, p *Provider, of []cloud.Offer, words ...string) {
	t.Helper()
	_, err := p.Sync(context.Background(), of)
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %s", err, w)
		}
	}
}

// A route is claimed, created, moved when its node is removed, adopted by the next
// provider, and deleted, and the interface accepts packets for other addresses.
func TestRoutes(t *testing.T) {
	s := newServer(t)
	p := provider(t, byTable)
	does(t, p, offers("a 10.0.0.1 10.1.1.0/24"))
	s.wants(
		"CreateTags ResourceId.1=rtb-1 Tag.1.Key=fairlead/lab/10.1.1.0/24 Tag.1.Value=eni-a",
		"CreateRoute DestinationCidrBlock=10.1.1.0/24 NetworkInterfaceId=eni-a RouteTableId=rtb-1",
		"ModifyNetworkInterfaceAttribute NetworkInterfaceId=eni-a SourceDestCheck.Value=false",
	)
	if s.asked["DescribeRouteTables"] != 2 || s.asked["DescribeNetworkInterfaces"] != 2 {
		t.Errorf("not all pages: %v", s.asked)
	}
	does(t, p, offers("a 10.0.0.1 10.1.1.0/24"))
	s.wants()
	does(t, provider(t, byTable), offers("b 10.0.0.2 10.1.1.0/24"))
	s.wants(
		"CreateTags ResourceId.1=rtb-1 Tag.1.Key=fairlead/lab/10.1.1.0/24 Tag.1.Value=eni-a eni-b",
		"ReplaceRoute DestinationCidrBlock=10.1.1.0/24 NetworkInterfaceId=eni-b RouteTableId=rtb-1",
		"CreateTags ResourceId.1=rtb-1 Tag.1.Key=fairlead/lab/10.1.1.0/24 Tag.1.Value=eni-b",
	)
	// Withdrawals come before additions.
	does(t, p, offers("b 10.0.0.2 fd00::/64"))
	s.wants(
		"DeleteRoute DestinationCidrBlock=10.1.1.0/24 RouteTableId=rtb-1",
		"DeleteTags ResourceId.1=rtb-1 Tag.1.Key=fairlead/lab/10.1.1.0/24",
		"CreateTags ResourceId.1=rtb-1 Tag.1.Key=fairlead/lab/fd00::/64 Tag.1.Value=eni-b",
		"CreateRoute DestinationIpv6CidrBlock=fd00::/64 NetworkInterfaceId=eni-b RouteTableId=rtb-1",
	)
}

// Prefixes are spread over the nodes; when one is removed, only its own move.
func TestRoutesAreSpread(t *testing.T) {
	s := newServer(t)
	p := provider(t, byTable)
	var all string
	for i := range 20 {
		all += fmt.Sprintf(" 10.1.%d.0/24", i)
	}
	does(t, p, offers("a 10.0.0.1"+all, "b 10.0.0.2"+all))
	before, count := map[string]string{}, map[string]int{}
	for p, to := range s.routes["rtb-1"] {
		before[p] = to
		count[to]++
	}
	if count["eni-a"] < 4 || count["eni-b"] < 4 || count["eni-a"]+count["eni-b"] != 20 {
		t.Errorf("%v", count)
	}
	s.wrote = nil
	does(t, p, offers("b 10.0.0.2"+all))
	moved := 0
	for _, w := range s.wrote {
		if strings.HasPrefix(w, "ReplaceRoute") {
			moved++
		}
	}
	if moved != count["eni-a"] {
		t.Errorf("%d moved, of %d that were a's", moved, count["eni-a"])
	}
}

// Routes that others created are rejected by name and not touched: whether they existed
// before, point to a load balancer, or replaced ours.
func TestForeignRoutesAreLeft(t *testing.T) {
	s := newServer(t)
	p := provider(t, byTable)
	s.routes["rtb-1"]["10.1.1.0/24"], s.routes["rtb-1"]["10.1.2.0/24"] = "igw-1", "eni-a"
	of := offers("a 10.0.0.1 10.1.1.0/24 10.1.2.0/24 10.1.3.0/24")
	does(t, p, of, "rtb-1 has a route of it to igw-1 that Fairlead has not made", "10.1.2.0/24: route table rtb-1 has a route of it to eni-a")
	s.change(func() { s.wrote, s.routes["rtb-1"]["10.1.3.0/24"] = nil, "eni-x" })
	does(t, p, of, "to igw-1", "to eni-a", "10.1.3.0/24: route table rtb-1 has a route of it to eni-x")
	s.wants()
	does(t, p, nil)
	s.wants("DeleteTags ResourceId.1=rtb-1 Tag.1.Key=fairlead/lab/10.1.3.0/24")
	does(t, p, offers("a 10.0.0.77 10.1.9.0/24"), "no network interface in the VPC has the address 10.0.0.77")
	s.wants()
}

// A throttled request is retried, others are not; a failure does not block anything else;
// and an error says what to do.
func TestFailures(t *testing.T) {
	s := newServer(t)
	p := provider(t, byTable)
	s.fail["DescribeRouteTables"] = &failure{"RequestLimitExceeded", 503, 2}
	does(t, p, offers("a 10.0.0.1 10.1.1.0/24"))
	if s.asked["DescribeRouteTables"] != 4 {
		t.Errorf("asked %d times for two pages, of which one was throttled twice", s.asked["DescribeRouteTables"])
	}
	s.wrote = nil
	s.fail["CreateRoute"] = &failure{"UnauthorizedOperation", 403, 1}
	of := offers("a 10.0.0.1 10.1.1.0/24 10.1.2.0/24 10.1.3.0/24")
	fails(t, p, of, "no right to ec2:CreateRoute: allow it in the IAM policy (docs/clouds.md)", "said the server")
	does(t, p, of)
	if got := s.routes["rtb-1"]; got["10.1.2.0/24"] != "eni-a" || got["10.1.3.0/24"] != "eni-a" {
		t.Errorf("%v", got)
	}
	s.fail["DescribeRouteTables"] = &failure{"InvalidRouteTableID.NotFound", 400, 1}
	fails(t, p, of, "--aws-route-table")
	s.fail["DescribeRouteTables"] = &failure{"AuthFailure", 401, 1}
	fails(t, p, of, "credentials rejected")
	// A replacement that fails half-way is completed by the next Sync.
	s.fail["ReplaceRoute"] = &failure{"IncorrectState", 400, 1}
	of = offers("b 10.0.0.2 10.1.1.0/24")
	fails(t, p, of, "ec2:ReplaceRoute: IncorrectState")
	does(t, p, of)
	if got := s.routes["rtb-1"]["10.1.1.0/24"] + s.tags["rtb-1"]["fairlead/lab/10.1.1.0/24"]; got != "eni-beni-b" {
		t.Error(got)
	}
}

// If two are leader for a moment, the state of the later one applies after its next Sync.
func TestTwoLeaders(t *testing.T) {
	s := newServer(t)
	old, later := provider(t, byTable), provider(t, byTable)
	does(t, later, offers("b 10.0.0.2 10.1.1.0/24"))
	does(t, old, offers("a 10.0.0.1 10.1.1.0/24"))
	does(t, later, offers("b 10.0.0.2 10.1.1.0/24"))
	if got := s.routes["rtb-1"]["10.1.1.0/24"]; got != "eni-b" {
		t.Error(got)
	}
	does(t, later, nil)
	if len(s.routes["rtb-1"]) != 1 || len(s.tags["rtb-1"]) != 0 {
		t.Errorf("left: %v %v", s.routes, s.tags)
	}
}

// An address is assigned, moves to another node with its Elastic IP when its node is
// removed, and is removed.
func TestAddresses(t *testing.T) {
	s := newServer(t)
	p := provider(t, Config{VPC: "vpc-1"})
	s.elastic["eipalloc-1"], s.tags["eipalloc-1"] = "", map[string]string{"fairlead/lab": "10.0.0.50"}
	s.elastic["eipalloc-2"] = ""
	does(t, p, offers("a 10.0.0.1 10.0.0.50/32"))
	s.wants(
		"CreateTags ResourceId.1=eni-a Tag.1.Key=fairlead/lab/10.0.0.50 Tag.1.Value=",
		"AssignPrivateIpAddresses AllowReassignment=false NetworkInterfaceId=eni-a PrivateIpAddress.1=10.0.0.50",
		"AssociateAddress AllocationId=eipalloc-1 AllowReassociation=true NetworkInterfaceId=eni-a PrivateIpAddress=10.0.0.50",
	)
	does(t, p, offers("a 10.0.0.1 10.0.0.50/32"))
	s.wants()
	does(t, p, offers("b 10.0.0.2 10.0.0.50/32"))
	s.wants(
		"CreateTags ResourceId.1=eni-b Tag.1.Key=fairlead/lab/10.0.0.50 Tag.1.Value=",
		"AssignPrivateIpAddresses AllowReassignment=true NetworkInterfaceId=eni-b PrivateIpAddress.1=10.0.0.50",
		"DeleteTags ResourceId.1=eni-a Tag.1.Key=fairlead/lab/10.0.0.50",
		"AssociateAddress AllocationId=eipalloc-1 AllowReassociation=true NetworkInterfaceId=eni-b PrivateIpAddress=10.0.0.50",
	)
	does(t, p, nil)
	s.wants(
		"UnassignPrivateIpAddresses NetworkInterfaceId=eni-b PrivateIpAddress.1=10.0.0.50",
		"DeleteTags ResourceId.1=eni-b Tag.1.Key=fairlead/lab/10.0.0.50",
	)
}

// A prefix withdrawn by the last node that can carry it is removed, even if another node
// offers it for which the VPC has no interface.
func TestWithdrawnThoughAnotherOffersIt(t *testing.T) {
	s := newServer(t)
	p := provider(t, byTable)
	does(t, p, offers("a 10.0.0.1 10.1.1.0/24"))
	does(t, p, offers("c 10.0.0.77 10.1.1.0/24"), "no network interface in the VPC has the address 10.0.0.77")
	if _, led := s.routes["rtb-1"]["10.1.1.0/24"]; led || len(s.tags["rtb-1"]) > 0 {
		t.Errorf("left: %v %v", s.routes, s.tags)
	}
	p = provider(t, Config{VPC: "vpc-1"})
	does(t, p, offers("a 10.0.0.1 10.0.0.50/32"))
	does(t, p, offers("c 10.0.0.77 10.0.0.50/32"), "no network interface in the VPC has the address 10.0.0.77")
	if len(s.holds["eni-a"]) != 1 || len(s.tags["eni-a"]) > 0 {
		t.Errorf("left: %v %v", s.holds, s.tags)
	}
}

// An error names the prefixes that are not done: all others are.
func TestFailuresArePrefixes(t *testing.T) {
	s := newServer(t)
	p := provider(t, byTable)
	undone := func(of []cloud.Offer, want ...string) {
		t.Helper()
		_, err := p.Sync(context.Background(), of)
		routes, rest := advertise.RouteErrors(err)
		var got []string
		for p := range routes {
			got = append(got, p.String())
		}
		if slices.Sort(got); !slices.Equal(got, want) || len(rest) > 0 || len(want) > 0 && !strings.Contains(err.Error(), "no right to ec2:") {
			t.Errorf("undone are %v, want %v, and %v: %v", got, want, rest, err)
		}
	}
	all := offers("a 10.0.0.1 10.1.1.0/24 10.1.2.0/24 10.1.3.0/24")
	s.fail["CreateRoute"] = &failure{"UnauthorizedOperation", 403, 1}
	undone(all, "10.1.1.0/24")
	undone(all)
	s.fail["DeleteRoute"] = &failure{"UnauthorizedOperation", 403, 1}
	undone(offers("a 10.0.0.1 10.1.3.0/24"), "10.1.1.0/24")
	s.fail["ReplaceRoute"] = &failure{"UnauthorizedOperation", 403, 1}
	undone(offers("b 10.0.0.2 10.1.3.0/24"), "10.1.3.0/24")
	p = provider(t, Config{VPC: "vpc-1"})
	s.fail["AssignPrivateIpAddresses"] = &failure{"UnauthorizedOperation", 403, 1}
	all = offers("a 10.0.0.1 10.0.0.50/32 10.0.0.51/32")
	undone(all, "10.0.0.50/32")
	undone(all)
	s.fail["UnassignPrivateIpAddresses"] = &failure{"UnauthorizedOperation", 403, 1}
	if _, err := p.Sync(context.Background(), nil); err == nil || len(s.holds["eni-a"]) != 2 {
		t.Errorf("of two addresses one cannot be taken back: %v, %v", s.holds, err)
	}
}

func TestForeignAddressesAreLeft(t *testing.T) {
	s := newServer(t)
	p := provider(t, Config{VPC: "vpc-1"})
	s.holds["eni-x"] = append(s.holds["eni-x"], "10.0.0.50")
	does(t, p, offers("a 10.0.0.1 10.0.0.50/32 10.0.0.9/32 10.1.0.0/24 fd00::1/128"),
		"10.0.0.50/32: network interface eni-x already has the address", "10.0.0.9/32: network interface eni-x",
		"10.1.0.0/24: a network interface accepts single addresses only", "fd00::1/128: an IPv6 address cannot be moved")
	s.wants()
}

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]Config{
		"one of the two":                {Owner: "lab"},
		"one of the two ":               {Owner: "lab", RouteTables: []string{"rtb-1"}, VPC: "vpc-1"},
		`the owner "No" is not 1 to 20`: {Owner: "No", RouteTables: []string{"rtb-1"}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
