package ipvs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
)

// The kernel's wrr selects backends in the order of package ring. It may begin anywhere:
// where it stood when the last backend was added or changed.
func TestWeightedRoundRobin(t *testing.T) {
	w := newWorld(t, service.NAT)
	w.serve(8080)
	port := uint16(20000)
	for _, weights := range [][servers]uint32{{2, 3, 1}, {1, 0, 3}, {4, 8, 2}} {
		f := frontend(service.NAT, service.WeightedRoundRobin, vip4, 80, 8080)
		f.Protocol = service.UDP
		var members []ring.Member
		for i := range f.Backends {
			f.Backends[i].Weight = weights[i]
			members = append(members, ring.Member{ID: ring.ID(i + 1), Addr: f.Backends[i].Addr, Weight: weights[i]})
		}
		w.upsert(f)
		var round, got strings.Builder
		for _, s := range ring.WeightedRoundRobin(members) {
			fmt.Fprint(&round, "s", s.First)
		}
		for range round.Len() { // two rounds
			name, err := w.ask(port, netip.AddrPortFrom(vip4, 80))
			must(t, err)
			got.WriteString(name)
			port++
		}
		if want := strings.Repeat(round.String(), 3); !strings.Contains(want, got.String()) {
			t.Errorf("weights %v: %s, want a part of %s", weights, got.String(), want)
		}
	}
}

// A change of a backend makes the kernel begin again at the first one. Our own data planes
// continue, because otherwise the last backends get no flows while others change.
func TestChangesRestartTurns(t *testing.T) {
	w := newWorld(t, service.NAT)
	w.serve(8080)
	f := frontend(service.NAT, service.WeightedRoundRobin, vip4, 80, 8080)
	f.Protocol = service.UDP
	var got string
	for i := range 2 * servers {
		f.Backends[servers-1].MaxConns = uint32(100 + i)
		w.upsert(f)
		name, err := w.ask(uint16(20000+i), netip.AddrPortFrom(vip4, 80))
		must(t, err)
		got += name
	}
	if want := strings.Repeat("s1", 2*servers); got != want {
		t.Errorf("the kernel selects %s, want %s", got, want)
	}
}
