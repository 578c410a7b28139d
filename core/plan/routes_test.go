package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// offering returns a plan for one Service with three backends, 172.16.0.1 to .3. on gives
// their nodes and states their health, as in build.
func offering(states, on string, offers ...route.Offer) *Plan {
	s := web("web", "10.1.1.1", 3)
	for i, n := range on {
		s.Frontends[0].Backends[i].Node = map[rune]string{'h': node.Name, 't': "there"}[n]
	}
	for i := range offers {
		if !offers[i].Prefix.IsValid() {
			offers[i].Prefix = netip.MustParsePrefix("10.1.1.1/32")
		}
	}
	n := node
	n.Weight = 7
	return Build(Input{
		Services: []*service.Service{s}, Node: n,
		Health: func(t health.Target) health.State {
			last := t.Addr.Addr().As4()[3] - 1
			return map[byte]health.State{'u': health.Up, 'd': health.Down, '?': health.Unknown}[states[last]]
		},
		Announce: func(*service.Service, netip.Addr) ([]route.Offer, string) { return offers, "" },
	})
}

func (p *Plan) routeWords() string {
	var all []string
	for _, r := range p.Routes {
		all = append(all, r.String())
	}
	for _, r := range p.Refusals {
		all = append(all, fmt.Sprint("not ", r.Prefix, ": ", r.Reason))
	}
	return strings.Join(all, "\n")
}

func TestTermsOfOffers(t *testing.T) {
	edge := func(change func(*route.Offer)) route.Offer {
		o := route.Offer{By: "Advertisement edge"}
		change(&o)
		return o
	}
	least := func(n int) route.Offer { return edge(func(o *route.Offer) { o.MinHealthyBackends = n }) }
	local := edge(func(o *route.Offer) { o.Local = true })
	endpoints := edge(func(o *route.Offer) { o.WeightBy = route.WeightByEndpoints })
	byNode := func(w uint32) route.Offer {
		return edge(func(o *route.Offer) { o.WeightBy, o.Weight = route.WeightByNode, w })
	}
	const yes = "10.1.1.1/32 via 10.0.0.105"
	for _, c := range []struct {
		name       string
		states, on string
		offer      route.Offer
		want       string
	}{
		{"enough", "uud", "ttt", least(2), yes},
		{"too few", "udd", "ttt", least(2), "not 10.1.1.1/32: Advertisement edge requires 2 healthy backends (minHealthyBackends), and TCP 10.1.1.1:80 has 1"},
		{"all fail, and are kept", "ddd", "hhh", least(0), yes},
		{"all fail, and one must not", "ddd", "hhh", least(1), "not 10.1.1.1/32: Advertisement edge requires 1 healthy backends (minHealthyBackends), and TCP 10.1.1.1:80 has 0"},
		{"one here", "uuu", "tth", local, yes},
		{"none here", "uuu", "ttt", local,
			"not 10.1.1.1/32: Advertisement edge is for nodes with a healthy local backend (trafficPolicy), and TCP 10.1.1.1:80 has none on this one"},
		{"none healthy here", "uud", "tth", local,
			"not 10.1.1.1/32: Advertisement edge is for nodes with a healthy local backend (trafficPolicy), and TCP 10.1.1.1:80 has none on this one"},
		{"two of three", "uuu", "hht", endpoints, yes + " (weight 2)"},
		{"one of them down", "udu", "hht", endpoints, yes + " (weight 1)"},
		{"none to weigh", "uuu", "ttt", endpoints,
			"not 10.1.1.1/32: Advertisement edge weights nodes by their healthy local backends (weightBy), and TCP 10.1.1.1:80 has none on this one"},
		{"by the node's label", "uuu", "ttt", byNode(3), yes + " (weight 3)"},
		{"by the agent's flag", "uuu", "ttt", byNode(0), yes + " (weight 7)"},
		{"not known yet", "???", "ttt", local, yes}, // the reconciler waits for the frontends
	} {
		if got := offering(c.states, c.on, c.offer).routeWords(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Of several offers for one prefix, the first by name wins. Communities and peers are
// merged; other differences are rejected by name.
func TestSeveralOffers(t *testing.T) {
	offer := func(by string, a route.Attributes) route.Offer {
		return route.Offer{By: "Advertisement " + by, Attributes: a}
	}
	a := offer("a", route.Attributes{Communities: "65000:1", MED: 10, Peers: "tor-1"})
	b := offer("b", route.Attributes{Communities: "no-export", MED: 10, Peers: "tor-2"})
	c := offer("c", route.Attributes{MED: 20, ASPathPrepend: 1})
	unfit := offer("d", route.Attributes{Communities: "65000:9"})
	unfit.MinHealthyBackends = 4
	for _, o := range [][]route.Offer{{a, b, unfit}, {unfit, b, a}} {
		want := "10.1.1.1/32 via 10.0.0.105 (communities 65000:1 no-export, MED 10, to tor-1 tor-2)"
		if got := offering("uuu", "ttt", slices.Clone(o)...).routeWords(); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	want := "10.1.1.1/32 via 10.0.0.105 (communities 65000:1, MED 10)\n" +
		"not 10.1.1.1/32: announced as Advertisement a has it, with med 10, not 20 and asPathPrepend 0, not 1 as Advertisement c wants: " +
		"a prefix is announced in one way; make the two say the same, or be for other Services or nodes"
	if got := offering("uuu", "ttt", c, a).routeWords(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Backends programmed before a restart count as healthy until their probes complete.
func TestTermsOutliveARestart(t *testing.T) {
	s := web("web", "10.1.1.1", 2)
	s.Frontends[0].Backends[0].Node = node.Name
	p := Build(Input{
		Services: []*service.Service{s}, Node: node,
		Health: func(health.Target) health.State { return health.Unknown },
		Announce: func(*service.Service, netip.Addr) ([]route.Offer, string) {
			return []route.Offer{{Prefix: netip.MustParsePrefix("10.1.1.1/32"), MinHealthyBackends: 2, Local: true, WeightBy: route.WeightByEndpoints}}, ""
		},
	})
	if got, want := p.routeWords(), "10.1.1.1/32 via 10.0.0.105 (weight 1)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
