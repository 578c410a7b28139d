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

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/service"
)

// everybody is what six new connections meet under round robin.
const everybody = "map[s1:2 s2:2 s3:2]"

// TestMethods: each method brings real connections to every server, over both
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

// A tunnel may be of GUE, or of the other family than what is in it.
func TestTunnels(t *testing.T) {
	w := newWorld(t, service.Tunnel)
	w.serve(80)
	w.tunnelEnds()
	gue := frontend(service.Tunnel, service.RoundRobin, vip4, 80, 80)
	gue.Encapsulation = service.GUE
	over6, over4 := frontend(service.Tunnel, service.RoundRobin, vip6, 80, 80), frontend(service.Tunnel, service.RoundRobin, vip4, 80, 80)
	over6.Key, over4.Key = over4.Key, over6.Key
	for name, f := range map[string]dataplane.Frontend{"gue": gue, "IPv4 in IPv6": over6, "IPv6 in IPv4": over4} {
		w.upsert(f)
		if got := w.listed()[f.Key]; !got.Same(canonical(f)) {
			t.Errorf("%s: lists %+v", name, got)
		}
		// Last packets of those before may have had their turn.
		if got := w.spread(netip.AddrPortFrom(f.VIP, 80), 6); len(got) != servers {
			t.Errorf("%s: %v answer", name, got)
		}
		must(t, w.plane.Delete(f.Key))
	}
}

// Everything that IPVS serves comes back from the kernel, and a restart over it
// changes nothing.
func TestListIsTheKernel(t *testing.T) {
	w := newWorld(t, service.NAT)
	rng := rand.New(rand.NewPCG(5, 6))
	want := map[service.Key]dataplane.Frontend{}
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
		t.Errorf("only %d are held: the test proves little", len(want))
	}
	for k := range want {
		must(t, w.plane.Delete(k))
		must(t, w.plane.Delete(k))
	}
	w.empty()
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
