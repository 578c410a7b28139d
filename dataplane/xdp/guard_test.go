package xdp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/guard"
	"github.com/fairlead/fairlead/lab/testkit"
)

// prefixes parses several prefixes.
func prefixes(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// dropsOf returns the number of packets dropped for a reason.
func dropsOf(d *DataPlane, reason string) uint64 { return d.Describe().Drops[reason] }

func guardedFrontend(allow, deny []netip.Prefix, l service.Limits) desired.Frontend {
	f := frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080")
	f.Allow, f.Deny, f.Limits = allow, deny, l
	return f
}

// from is a client's packet to the guarded frontend.
func from(t testing.TB, addr netip.Addr, flags string) []byte {
	dst := "10.1.1.1:80"
	if addr.Is6() {
		dst = "[fd99::1]:80"
	}
	return packet{src: netip.AddrPortFrom(addr, 1234).String(), dst: dst, flags: flags}.bytes(t)
}

func TestSourceRanges(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, c := range []struct {
		name        string
		allow, deny []netip.Prefix
		pass, drop  []string
	}{
		{"none", nil, nil, []string{"192.0.2.7", "203.0.113.1"}, nil},
		{"allow", prefixes("192.0.2.0/24", "198.51.100.7/32"), nil, []string{"192.0.2.7", "198.51.100.7"}, []string{"198.51.100.8", "203.0.113.1"}},
		{"deny", nil, prefixes("192.0.2.0/25"), []string{"192.0.2.200", "203.0.113.1"}, []string{"192.0.2.7"}},
		{"deny wins, however wide", prefixes("192.0.2.7/32"), prefixes("192.0.0.0/16"), nil, []string{"192.0.2.7", "203.0.113.1"}},
		{"everybody", prefixes("0.0.0.0/0"), nil, []string{"192.0.2.7"}, nil},
		{"everybody of the other family", prefixes("::/0"), nil, nil, []string{"192.0.2.7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := guardedFrontend(c.allow, c.deny, service.Limits{})
			upsert(t, d, f)
			got, err := d.List()
			must(t, err)
			if len(got) != 1 || !slices.Equal(got[0].Allow, c.allow) || !slices.Equal(got[0].Deny, c.deny) {
				t.Errorf("holds %+v", got)
			}
			before := dropsOf(d, "source-denied")
			for _, a := range c.pass {
				if v, _ := n.run(t, d, from(t, netip.MustParseAddr(a), "S")); v != redirect {
					t.Errorf("%s: %v", a, v)
				}
			}
			for _, a := range c.drop {
				if v, _ := n.run(t, d, from(t, netip.MustParseAddr(a), "A")); v != drop {
					t.Errorf("%s: %v", a, v)
				}
			}
			if got := dropsOf(d, "source-denied") - before; got != uint64(len(c.drop)) {
				t.Errorf("%d counted as source-denied, want %d", got, len(c.drop))
			}
		})
	}
	must(t, d.Delete(guardedFrontend(nil, nil, service.Limits{}).Key))
	noGuards(t, d)
}

// noGuards verifies that the guard's maps are empty.
func noGuards(t *testing.T, d *DataPlane) {
	t.Helper()
	var id uint32
	for name, m := range map[string]*ebpf.Map{"ranges": d.kernel.GuardRanges, "limits": d.kernel.GuardLimits} {
		for it := m.Iterate(); it.Next(&id, new(ebpf.MapID)) || it.Err() != nil; {
			t.Fatalf("%s left for %d: %v", name, id, it.Err())
		}
	}
}

// slowGuard is the reference implementation of guard_source: no trie, a scan of all
// ranges.
func slowGuard(f desired.Frontend, a netip.Addr) bool {
	has := func(all []netip.Prefix) bool {
		return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return !has(f.Deny) && (len(f.Allow) == 0 || has(f.Allow))
}

// Random ranges, and clients at and next to their edges: trie and reference agree.
func TestSourceRangesAgreeWithSlowTwin(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[bool]int{}
	for range 40 {
		v6 := rng.IntN(2) == 0
		f := guardedFrontend(randomPrefixes(rng, v6), randomPrefixes(rng, v6), service.Limits{})
		if v6 {
			f.VIP, f.Backends[0].Addr = netip.MustParseAddr("fd99::1"), netip.MustParseAddrPort("[fd05::1]:8080")
		}
		upsert(t, d, f)
		clients := edges(rng, append(slices.Clone(f.Allow), f.Deny...), v6)
		testkit.Do(t, n.balancer, func() error {
			for _, a := range clients {
				v, _, err := n.runHere(d, from(t, a, "S"))
				if err != nil {
					return err
				}
				want := slowGuard(f, a)
				seen[want]++
				if (v == redirect) != want {
					t.Fatalf("%s: %v, but allow %v, deny %v", a, v, f.Allow, f.Deny)
				}
			}
			return nil
		})
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("verdicts %v: not worth it", seen)
	}
}

// unicast4 and unicast6 are the ranges of random clients: other addresses may be
// martians.
var unicast4, unicast6 = netip.MustParsePrefix("192.0.0.0/12"), netip.MustParsePrefix("2001:d00::/24")

func randomAddr(rng *rand.Rand, v6 bool) netip.Addr {
	p := unicast4
	if v6 {
		p = unicast6
	}
	b := p.Addr().As16()
	if v6 {
		for i := 3; i < 16; i++ {
			b[i] = byte(rng.Uint32())
		}
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte{192, byte(rng.IntN(16)), byte(rng.IntN(4)), byte(rng.Uint32())})
}

func randomPrefixes(rng *rand.Rand, v6 bool) []netip.Prefix {
	var all []netip.Prefix
	for range rng.IntN(12) {
		a := randomAddr(rng, v6)
		p := netip.PrefixFrom(a, 8+rng.IntN(a.BitLen()-7)).Masked()
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// edges returns the first and last addresses of ranges, their neighbors, and some random
// ones.
func edges(rng *rand.Rand, ranges []netip.Prefix, v6 bool) []netip.Addr {
	in := unicast4
	if v6 {
		in = unicast6
	}
	all := []netip.Addr{randomAddr(rng, v6), randomAddr(rng, v6)}
	for _, p := range ranges {
		last := p.Addr().AsSlice()
		for i := p.Bits(); i < len(last)*8; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		l, _ := netip.AddrFromSlice(last)
		all = append(all, p.Addr(), p.Addr().Prev(), l, l.Next())
	}
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() || !in.Contains(a) })
}

// passed runs a client's packet several times and returns how many passed.
func (n *testNet) passed(t *testing.T, d *DataPlane, frame []byte, times int) (passed int) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		for range times {
			v, _, err := n.runHere(d, frame)
			if err != nil {
				return err
			}
			if v == redirect {
				passed++
			}
		}
		return nil
	})
	return passed
}

// A limit lets through its burst immediately, and then no more than its rate. The clock
// is the program's, so the test tolerates elapsed time.
func TestLimits(t *testing.T) {
	n := newNet(t)
	a, b := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")
	const burst = guard.LeastBurst
	for _, c := range []struct {
		name   string
		limits service.Limits
		// passed packets out of a hundred, each kind in this order
		synsA, acksA, synsB, acksB int
	}{
		{"client packets", service.Limits{ClientPackets: 1}, burst, 0, burst, 0},
		{"client opens", service.Limits{ClientOpens: 1}, burst, 100, burst, 100},
		{"packets", service.Limits{Packets: 1}, burst, 0, 0, 0},
		{"opens", service.Limits{Opens: 1}, burst, 100, 0, 100},
		{"opens, then packets", service.Limits{ClientOpens: 1, Packets: 2}, burst, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := n.open(t, config())
			defer func() { must(t, d.Detach()); n.current = nil }()
			upsert(t, d, guardedFrontend(nil, nil, c.limits))
			got, err := d.List()
			must(t, err)
			if got[0].Limits != c.limits {
				t.Errorf("holds %+v", got[0].Limits)
			}
			for i, k := range []struct {
				client netip.Addr
				flags  string
				want   int
			}{{a, "S", c.synsA}, {a, "A", c.acksA}, {b, "S", c.synsB}, {b, "A", c.acksB}} {
				// On a slow machine more tokens accrue: two per second at
				// most.
				if got := n.passed(t, d, from(t, k.client, k.flags), 100); got < k.want || got > k.want+50 {
					t.Errorf("%d: %s of %s: %d of 100 passed, want %d", i, k.flags, k.client, got, k.want)
				}
			}
			if dropsOf(d, "rate-limited") == 0 {
				t.Error("none counted as rate-limited")
			}
		})
	}
}

// A packet with options counts once, like any other.
func TestLimitsOfOddPackets(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, guardedFrontend(nil, nil, service.Limits{ClientPackets: 1}))
	odd := withOptions(from(t, netip.MustParseAddr("192.0.2.7"), "A"), someOptions["router alert"]...)
	if got := n.passed(t, d, odd, 100); got < guard.LeastBurst || got > guard.LeastBurst+50 {
		t.Errorf("%d of 100 passed, want %d", got, guard.LeastBurst)
	}
}

// A flood from distinct addresses makes no client within its limit fail, and a client
// that has used up its limit does not get a new one.
func TestFloodOfClients(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, guardedFrontend(nil, nil, service.Limits{ClientPackets: 1_000_000, ClientOpens: 1}))
	known := netip.MustParseAddr("203.0.113.7") // not in the flood
	if got := n.passed(t, d, from(t, known, "S"), 50); got < guard.LeastBurst || got > 25 {
		t.Fatalf("%d of 50 passed", got)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	testkit.Do(t, n.balancer, func() error {
		for i := range 20_000 {
			v, _, err := n.runHere(d, from(t, randomAddr(rng, false), "S"))
			if err != nil || v != redirect {
				return fmt.Errorf("flooder %d: %v, %v", i, v, err)
			}
		}
		return nil
	})
	if got := n.passed(t, d, from(t, known, "A"), 100); got != 100 {
		t.Errorf("%d of 100 packets of an established flow passed", got)
	}
}
