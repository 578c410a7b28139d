package bgp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/interop"
)

// TestBandwidthsAtRouters has one load balancer advertise three times the bandwidth of
// the other: our router and FRR give it three times the share, BIRD, which does not
// support bandwidths, the same share.
func TestBandwidthsAtRouters(t *testing.T) {
	for router, want := range map[string]string{
		"fairlead": "20: 10.0.0.105 10.0.0.106*3",
		"frr":      "20: 10.0.0.105*25 10.0.0.106*75", // in percent
		"bird":     "20: 10.0.0.105 10.0.0.106",
	} {
		t.Run(router, func(t *testing.T) {
			l := paper(t)
			enact(t, l.Host("reflector"), reflectorPart("10.0.0.109"))
			if router == "fairlead" {
				enact(t, l.Host("router"), routerPart("10.0.0.109"))
			} else {
				startForeign(t, l, interop.Kind(router))
			}
			for n, weight := range map[int]uint32{5: 1, 6: 3} {
				p := speakerPart(n, "10.0.0.109")
				p.Routes[0].Weight = weight
				enact(t, l.Host(fmt.Sprintf("pod-10%d", n)), p)
			}
			last := ""
			for deadline := time.Now().Add(30 * time.Second); last != want; time.Sleep(5 * time.Millisecond) {
				routes, err := l.Host("router").Routes(service)
				if err != nil {
					t.Fatal(err)
				}
				if last = strings.Join(routes, "; "); time.Now().After(deadline) {
					t.Fatalf("the kernel has %q, want %q", last, want)
				}
			}
		})
	}
}

func startForeign(t *testing.T, l *lab.Lab, kind interop.Kind) {
	t.Helper()
	d, err := interop.Start(l.Host("router").Namespace(), kind, interop.Config{
		AS: testAS, RouterID: netip.MustParseAddr("10.0.0.110"), Peers: []interop.Peer{{Address: netip.MustParseAddr("10.0.0.109")}}})
	if err != nil && strings.Contains(err.Error(), "install Debian's package") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.Log())
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
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
