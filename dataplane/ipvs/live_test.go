package ipvs

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/ipvs"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/testkit"
)

// everybody is the result of six new connections with round robin.
const everybody = "map[s1:2 s2:2 s3:2]"

// TestMethods: each forwarding mode sends real connections to every backend, with both
// families.
func TestMethods(t *testing.T) {
	for _, method := range []service.Method{service.NAT, service.DR, service.Tunnel, service.FullNAT} {
		t.Run(string(method), func(t *testing.T) {
			w := newWorld(t, method)
			port := uint16(80)
			if method == service.NAT || method == service.FullNAT {
				port = 8080
			}
			w.serve(port)
			if method == service.Tunnel {
				w.tunnelEnds()
			}
			for _, vip := range []netip.Addr{vip4, vip6} {
				f := frontend(method, service.RoundRobin, vip, 80, port)
				w.upsert(f)
				at := netip.AddrPortFrom(vip, 80)
				if got := w.spread(at, 6); fmt.Sprint(got) != everybody {
					t.Errorf("%s: %v answer", at, got)
				}
				f.Protocol = service.UDP
				w.upsert(f)
				got := map[string]int{}
				for i := range 6 {
					name, err := w.ask(uint16(20000+i), at)
					must(t, err)
					got[name]++
				}
				if fmt.Sprint(got) != everybody {
					t.Errorf("UDP %s: %v answer", at, got)
				}
			}
		})
	}
}

// A tunnel may be GUE, or of another family than the inner packet.
func TestTunnels(t *testing.T) {
	w := newWorld(t, service.Tunnel)
	w.serve(80)
	w.tunnelEnds()
	gue := frontend(service.Tunnel, service.RoundRobin, vip4, 80, 80)
	gue.Encapsulation = service.GUE
	over6, over4 := frontend(service.Tunnel, service.RoundRobin, vip6, 80, 80), frontend(service.Tunnel, service.RoundRobin, vip4, 80, 80)
	over6.Key, over4.Key = over4.Key, over6.Key
	for name, f := range map[string]desired.Frontend{"gue": gue, "IPv4 in IPv6": over6, "IPv6 in IPv4": over4} {
		w.upsert(f)
		if got := w.listed()[f.Key]; !got.Same(canonical(f)) {
			t.Errorf("%s: lists %+v", name, got)
		}
		// Late packets of earlier ones may have taken a turn.
		if got := w.spread(netip.AddrPortFrom(f.VIP, 80), 6); len(got) != servers {
			t.Errorf("%s: %v answer", name, got)
		}
		must(t, w.plane.Delete(f.Key))
	}
}

// Everything that IPVS serves is read back from the kernel, and a restart changes
// nothing.
func TestListIsTheKernel(t *testing.T) {
	w := newWorld(t, service.NAT)
	rng := rand.New(rand.NewPCG(5, 6))
	want := map[service.Key]desired.Frontend{}
	for step := range 60 {
		f := anyFrontend(rng)
		switch err := w.plane.Upsert(f); {
		case errors.Is(err, dataplane.ErrUnsupported):
			continue
		case err != nil:
			t.Fatalf("%+v: %v", f, err)
		}
		want[f.Key] = canonical(f)
		if step%4 == 0 {
			gone := pick(rng, slices.Collect(maps.Keys(want))...)
			must(t, w.plane.Delete(gone))
			delete(want, gone)
		}
		if step%25 == 0 {
			w.open(Config{})
		}
		if step%5 == 0 {
			if d := diff(want, w.listed()); d != "" {
				t.Fatalf("step %d (-want +got):\n%s", step, d)
			}
		}
	}
	if len(want) < 8 {
		t.Errorf("only %d are programmed: the test proves little", len(want))
	}
	for k := range want {
		must(t, w.plane.Delete(k))
		must(t, w.plane.Delete(k))
	}
	w.empty()
}

// The kernel lists many backends, and many services, in many datagrams.
func TestManyServersAreRead(t *testing.T) {
	w := newWorld(t, service.NAT)
	want := map[service.Key]desired.Frontend{}
	for i := range 100 {
		f := frontend(service.NAT, service.RoundRobin, netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}), 80, 80)
		for n := range 3 * i {
			f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 17, byte(n >> 8), byte(n)}), 80), Weight: 1})
		}
		w.upsert(f)
		want[f.Key] = canonical(f)
	}
	if d := diff(want, w.listed()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Another library reads the same from the kernel as ours.
func TestAnotherReaderAgrees(t *testing.T) {
	w := newWorld(t, service.NAT)
	a, b := frontend(service.NAT, service.Maglev, vip4, 80, 8080), frontend(service.DR, service.WeightedLeastConn, vip6, 53, 53)
	a.Affinity, a.Backends[1].Weight, a.Backends[2].MaxConns = time.Minute, 65535, 9
	b.Protocol = service.UDP
	w.upsert(a)
	w.upsert(b)
	theirs, err := ipvs.New(w.lab.Host("balancer").Namespace().Path())
	must(t, err)
	defer theirs.Close()
	services, err := theirs.GetServices()
	must(t, err)
	var got []string
	for _, s := range services {
		got = append(got, fmt.Sprintf("%s %d %d %s %#x %d", s.Address, s.Port, s.Protocol, s.SchedName, s.Flags, s.Timeout))
		destinations, err := theirs.GetDestinations(s)
		must(t, err)
		for _, d := range destinations {
			got = append(got, fmt.Sprintf("%s %s %d %#x %d %d %d", s.Address, d.Address, d.Port, d.ConnectionFlags, d.Weight, d.UpperThreshold, d.LowerThreshold))
		}
	}
	slices.Sort(got)
	want := []string{
		"10.1.1.1 172.16.0.11 8080 0x0 1 0 0", "10.1.1.1 172.16.0.12 8080 0x0 65535 0 0", "10.1.1.1 172.16.0.13 8080 0x0 1 9 9",
		"10.1.1.1 80 6 mh 0xfa10000b 60",
		"2001:db8:1::1 53 17 wlc 0xfa100002 0",
		"2001:db8:1::1 fd00::11 53 0x3 1 0 0", "2001:db8:1::1 fd00::12 53 0x3 1 0 0", "2001:db8:1::1 fd00::13 53 0x3 1 0 0",
	}
	if d := diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// empty fails unless nothing of the data plane is left in the kernel.
func (w *world) empty() {
	w.Helper()
	must(w, w.lab.Host("balancer").Do(func() error {
		for name, command := range map[string][]string{
			"services": {"cat", "/proc/net/ip_vs"}, "routes": {"ip", "route", "show", "table", "local", "proto", "250"},
			"routes of IPv6": {"ip", "-6", "route", "show", "table", "local", "proto", "250"},
			"rules":          {"sh", "-c", "iptables-legacy-save; ip6tables-legacy-save"},
		} {
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", name, err, out)
			}
			if text := string(out); strings.Contains(text, "FAIRLEAD") || name != "rules" && name != "services" && text != "" ||
				name == "services" && strings.Count(text, "\n") > 3 {
				w.Errorf("%s are left:\n%s", name, text)
			}
		}
		return nil
	}))
}

// The frontends of another data plane move to IPVS, and on to a third. Connections whose
// backend is the only one continue.
func TestMoves(t *testing.T) {
	w := newWorld(t, service.DR)
	w.serve(80)
	w.direct = true
	f := frontend(service.DR, service.Maglev, vip4, 80, 80)
	f.Backends = f.Backends[:1]
	f.RingSize, f.Survival = service.DefaultRingSize, service.HashOnly
	first, last := removable{fake.New()}, removable{fake.New()}
	must(t, first.Upsert(f))
	w.upsert(f)
	c := w.dial(netip.AddrPortFrom(vip4, 80)) // the backend does not matter: it is established
	_, err := c.who()
	must(t, err)
	must(t, w.plane.Detach())
	w.plane = nil
	w.open(Config{})
	present := func(want bool) {
		t.Helper()
		testkit.Do(t, w.lab.Host("balancer").Namespace(), func() error {
			if got, err := Present(); got != want || err != nil {
				t.Errorf("present: %v, %v; want %v", got, err, want)
			}
			return nil
		})
	}
	present(false)
	must(t, dataplane.Move(first, w.plane))
	present(true)
	if got, err := c.who(); got != "s1" || err != nil {
		t.Errorf("the open connection: %q, %v", got, err)
	}
	must(t, dataplane.Move(w.plane, last))
	w.plane = nil
	w.empty()
	present(false)
	programmed, err := last.List()
	must(t, err)
	if len(programmed) != 1 || !canonical(programmed[0]).Same(canonical(f)) {
		t.Errorf("the third holds %+v", programmed)
	}
}

// removable is an in-memory data plane that can be removed.
type removable struct{ *fake.DataPlane }

func (removable) Detach() error { return nil }
