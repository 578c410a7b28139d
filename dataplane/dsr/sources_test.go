package dsr

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/tc"
)

// TestSourceRangesAtTheBackend sends packets of a client outside a Service's source
// ranges directly to the backend's node, bypassing every load balancer.
func TestSourceRangesAtTheBackend(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		direct := netip.AddrPortFrom(p.Addr(), 9090)
		other := netip.AddrPortFrom(v.Addr(), v.Port()+1)
		n.set(t, entry(service.Tunnel, v, p, service.TCP), entry(service.DSRNAT, v, direct, service.TCP), entry(service.Tunnel, other, p, service.UDP))
		frames := map[string]wire{
			"tunnel":            {client: c, dst: v, flags: "S", tunnel: p.Addr()},
			"tunnel with list":  {client: c, dst: v, payload: "x", tunnel: p.Addr(), tunnelOption: list{s}},
			"tunnel by GUE":     {client: c, dst: v, flags: "S", tunnel: p.Addr(), gue: true},
			"dsr-nat":           {client: c, dst: direct, flags: "S", option: list{v}},
			"dsr-nat, data":     {client: c, dst: direct, payload: "x", option: list{v}},
			"direct, with list": {client: c, dst: direct, payload: "x", option: list{v, s}},
		}
		denied := func(when string, want bool) {
			t.Helper()
			for name, w := range frames {
				before := n.count(t, "dropped-source-denied")
				verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t))
				if got := verdict == dropped; got != want || n.count(t, "dropped-source-denied")-before != map[bool]uint64{true: 1}[want] {
					t.Errorf("%s, %s: verdict %d, denied %v, want %v", when, name, verdict, got, want)
				}
			}
			// Another frontend of the VIP has its own ranges: none.
			free := wire{client: c, dst: other, udp: true, payload: "x", tunnel: p.Addr()}
			if verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, free.bytes(t)); verdict != untouched {
				t.Errorf("%s, another frontend: verdict %d", when, verdict)
			}
		}
		bits := c.Addr().BitLen()
		client, neighbor := netip.PrefixFrom(c.Addr(), bits), netip.PrefixFrom(c.Addr().Next(), bits)
		wide := netip.PrefixFrom(c.Addr(), bits-8).Masked()
		of := func(allow, deny []netip.Prefix) []Sources {
			return []Sources{{Key: service.Key{VIP: v.Addr(), Port: v.Port(), Protocol: service.TCP}, Allow: allow, Deny: deny}}
		}
		for _, step := range []struct {
			when    string
			sources []Sources
			denied  bool
		}{
			{"no ranges", nil, false},
			{"a neighbor is allowed", of([]netip.Prefix{neighbor}, nil), true}, // also to continue existing flows
			{"its network is allowed", of([]netip.Prefix{wide}, nil), false},
			{"its network but not itself", of([]netip.Prefix{wide}, []netip.Prefix{client}), true},
			{"its network is denied", of(nil, []netip.Prefix{wide}), true},
			{"a neighbor is denied", of(nil, []netip.Prefix{neighbor}), false},
		} {
			if err := n.agent.SetSources(step.sources); err != nil {
				t.Fatal(err)
			}
			denied(step.when, step.denied)
		}
		if err := n.agent.SetSources(of([]netip.Prefix{neighbor}, nil)); err != nil {
			t.Fatal(err)
		}
		if err := n.agent.Close(); err != nil {
			t.Fatal(err)
		}
		n.agent = openAgent(t, n.ns, Config{}, tc.Open)
		denied("after a restart", true)
		if err := n.agent.SetSources(nil); err != nil {
			t.Fatal(err)
		}
		denied("no ranges again", false)
	})
}

// TestSourceRangesOfPorts has frontends with whole addresses and every protocol.
func TestSourceRangesOfPorts(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		key := service.Key{VIP: v.Addr(), Port: 1000, Last: 2000, Protocol: service.AnyProtocol}
		n.setOnly(t, Entry{Key: key, Method: service.Tunnel, Server: netip.AddrPortFrom(p.Addr(), 0)})
		at := wire{client: c, dst: netip.AddrPortFrom(v.Addr(), 1500), flags: "S", tunnel: p.Addr()}
		for _, allow := range []netip.Addr{c.Addr(), c.Addr().Next()} {
			if err := n.agent.SetSources([]Sources{{Key: key, Allow: []netip.Prefix{netip.PrefixFrom(allow, allow.BitLen())}}}); err != nil {
				t.Fatal(err)
			}
			verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, at.bytes(t))
			if got, want := verdict == dropped, allow != c.Addr(); got != want {
				t.Errorf("%s is allowed: verdict %d", allow, verdict)
			}
		}
	})
}

// TestSourceRangesAgree compares the programs with a linear search, for random ranges
// that nest and overlap.
func TestSourceRangesAgree(t *testing.T) {
	families(t, func(t *testing.T, v, p, s, c netip.AddrPort) {
		n := newNode(t)
		rng := rand.New(rand.NewPCG(17, uint64(v.Addr().BitLen())))
		random := func() netip.Addr {
			b := c.Addr().AsSlice()
			for _, at := range []int{len(b) - 1, len(b) - 2} {
				b[at] ^= byte(rng.IntN(4))
			}
			a, _ := netip.AddrFromSlice(b)
			return a
		}
		prefixes := func() (all []netip.Prefix) {
			for range rng.IntN(4) {
				all = append(all, netip.PrefixFrom(random(), c.Addr().BitLen()-rng.IntN(12)).Masked())
			}
			return all
		}
		n.set(t, entry(service.Tunnel, v, p, service.TCP))
		for range 60 {
			of := Sources{Key: service.Key{VIP: v.Addr(), Port: v.Port(), Protocol: service.TCP}, Allow: prefixes(), Deny: prefixes()}
			if err := n.agent.SetSources([]Sources{of}); err != nil {
				t.Fatal(err)
			}
			for range 8 {
				client := random()
				within := func(p netip.Prefix) bool { return p.Contains(client) }
				want := len(of.Allow) > 0 && !slices.ContainsFunc(of.Allow, within) || slices.ContainsFunc(of.Deny, within)
				w := wire{client: netip.AddrPortFrom(client, 999), dst: v, flags: "S", tunnel: p.Addr()}
				verdict, _ := n.run(t, n.agent.obj.ToServer, n.pod, w.bytes(t))
				if got := verdict == dropped; got != want {
					t.Fatalf("client %s, allow %v, deny %v: denied %v, want %v", client, of.Allow, of.Deny, got, want)
				}
			}
		}
	})
}
