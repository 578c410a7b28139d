package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/internal/keyed"
	"github.com/fairlead/fairlead/router"
)

func set(prefix string, nextHops ...string) advertise.RouteSet {
	s := advertise.RouteSet{Prefix: netip.MustParsePrefix(prefix)}
	for _, h := range nextHops {
		s.NextHops = append(s.NextHops, netip.MustParseAddr(h))
	}
	return s
}

func kernelRoute(prefix string, group uint32, gateways ...string) router.Route {
	r := router.Route{Prefix: netip.MustParsePrefix(prefix), Group: group, Metric: 20, Protocol: router.DefaultProtocol, Resilient: true}
	for _, g := range gateways {
		r.Hops = append(r.Hops, router.Hop{Gateway: netip.MustParseAddr(g), Device: "eth1", Weight: 1})
	}
	return r
}

// routed is a router that received three prefixes: one has a next hop that this machine
// cannot reach, one is behind a gateway.
func routed(role string, faults ...router.Fault) Routing {
	r := Routing{
		Version: "v1", Kernel: "Linux 6.1", Node: "router1", Role: role, Started: eleven, Peers: peers{}.Peers,
		Received: func() ([]advertise.RouteSet, error) {
			return []advertise.RouteSet{
				set("10.1.1.0/24", "10.0.0.105", "10.0.0.106"), set("10.1.2.0/24", "10.9.9.9"), set("10.1.3.0/24", "10.8.0.1"),
			}, nil
		},
	}
	if role == RoleRouter {
		r.Table = kernelTable{faults: faults, routes: []router.Route{
			kernelRoute("10.1.1.0/24", 100001, "10.0.0.105", "10.0.0.106"), kernelRoute("10.1.3.0/24", 100004, "10.0.0.1"),
		}}
	}
	return r
}

// kernelTable is a table with configurable contents.
type kernelTable struct {
	routes []router.Route
	faults []router.Fault
	failed error
}

func (k kernelTable) List() ([]router.Route, error) { return k.routes, nil }
func (k kernelTable) Faults() []router.Fault        { return k.faults }
func (k kernelTable) Failed() error                 { return k.failed }

func fault(prefix string, err error) router.Fault {
	return router.Fault{Prefix: netip.MustParsePrefix(prefix), Retry: keyed.Retry{Err: err, Since: eleven, Tries: 3}}
}

// words formats routes as "10.1.1.0/24 10.0.0.105 true reason".
func words(routes []Route) []string {
	var all []string
	for _, r := range routes {
		all = append(all, strings.TrimSpace(fmt.Sprint(r.Prefix, " ", r.NextHop, " ", r.Advertised, " ", r.Reason)))
	}
	return all
}

func TestRouterReportsKernelRoutes(t *testing.T) {
	want := []string{
		"10.1.1.0/24 10.0.0.105 true", "10.1.1.0/24 10.0.0.106 true",
		"10.1.2.0/24 10.9.9.9 false not yet installed in the kernel", "10.1.3.0/24 10.0.0.1 true",
	}
	if got := words(routed(RoleRouter).Gather(eleven).Routes); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// A degraded route has its own reason, which no other route has.
	s := routed(RoleRouter, fault("10.1.2.0/24", errors.New("next hop 10.9.9.9: no route to it"))).Gather(eleven)
	want[2] = "10.1.2.0/24 10.9.9.9 false next hop 10.9.9.9: no route to it"
	if got := words(s.Routes); !slices.Equal(got, want) || s.Routes[2].Rule != RuleDegraded {
		t.Errorf("got %q, want %q", got, want)
	}
	const problem = "route 10.1.2.0/24: degraded since 2026-03-01T11:00:00Z, 3 tries, will retry: next hop 10.9.9.9: no route to it"
	if len(s.Problems) != 1 || s.Problems[0].String() != problem {
		t.Errorf("problems %v, want %s", s.Problems, problem)
	}
	r := routed(RoleRouter)
	r.Table = kernelTable{failed: errors.New("list routes: no")}
	if p := r.Gather(eleven).Problems; len(p) != 1 || p[0].String() != "kernel table: list routes: no" {
		t.Errorf("problems %v", p)
	}
}

// TestDegradedRoutesAreShown shows a router with one route that lacks a next hop, and one
// that could not be changed.
func TestDegradedRoutesAreShown(t *testing.T) {
	s := routed(RoleRouter, fault("10.1.2.0/24", errors.New("next hop 10.9.9.9: no route to it")),
		fault("10.1.3.0/24", errors.New("change group 100004: no"))).Gather(eleven)
	var b strings.Builder
	for _, v := range []View{s.Overview(), s.RoutesView()} {
		if err := Write(&b, v, Table); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"routes      3 of 4 in the kernel, degraded prefixes: 2\n",
		"            route 10.1.3.0/24: degraded since 2026-03-01T11:00:00Z, 3 tries, will retry: change group 100004: no\n",
		"10.1.2.0/24 via 10.9.9.9 is not in the kernel: next hop 10.9.9.9: no route to it\n10.1.3.0/24 is degraded: change group 100004: no\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestEachRouteThatFailsIsAProblem(t *testing.T) {
	hops := errors.Join(errors.New("next hop 10.9.9.8: no route"), errors.New("next hop 10.9.9.9: no route"))
	faults := []router.Fault{{Prefix: netip.MustParsePrefix("10.1.1.0/24"), Retry: keyed.Retry{Err: hops}}}
	for range namedRefusals + 4 {
		faults = append(faults, fault("10.1.2.0/24", errors.New("refused")))
	}
	problems := routed(RoleRouter, faults...).Gather(eleven).Problems
	if len(problems) != namedRefusals+1 || problems[namedRefusals].String() != "kernel table: and 5 more routes are degraded" ||
		problems[0].String() != "route 10.1.1.0/24: next hop 10.9.9.8: no route; next hop 10.9.9.9: no route" {
		t.Errorf("problems %v", problems)
	}
}

func TestRouterReportsRejectedRoutes(t *testing.T) {
	r := routed(RoleRouter)
	uneven := set("10.1.1.0/24", "10.0.0.105", "10.0.0.106")
	uneven.Uneven = "10.0.0.105 has a bandwidth and 10.0.0.106 does not"
	r.Received = func() ([]advertise.RouteSet, error) { return []advertise.RouteSet{uneven}, nil }
	many := map[netip.Prefix]string{netip.MustParsePrefix("0.0.0.0/0"): "never"}
	for i := range 25 {
		many[netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)] = "outside"
	}
	r.Refused = func() (map[netip.Prefix]string, error) { return many, nil }
	problems := r.Gather(eleven).Problems
	if len(problems) != 1+namedRefusals+1 {
		t.Fatalf("%d problems: %v", len(problems), problems)
	}
	for i, want := range map[int]string{
		0: "route 10.1.1.0/24: " + uneven.Uneven, 1: "route 0.0.0.0/0: never", 21: "BGP table: and 6 other prefixes are rejected",
	} {
		if got := problems[i].String(); got != want {
			t.Errorf("problem %d: %s, want %s", i, got, want)
		}
	}
}

func TestReflectorReportsReceivedRoutes(t *testing.T) {
	s := routed(RoleReflector).Gather(eleven)
	want := []string{
		"10.1.1.0/24 10.0.0.105 true", "10.1.1.0/24 10.0.0.106 true", "10.1.2.0/24 10.9.9.9 true", "10.1.3.0/24 10.8.0.1 true",
	}
	if got := words(s.Routes); !slices.Equal(got, want) || len(s.Peers) != 1 || s.Table != nil {
		t.Errorf("routes %q, peers %v, table %v", got, s.Peers, s.Table)
	}
}
