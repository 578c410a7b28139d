package ipvs

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/service"
)

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
				if got := w.spread(at, 6); fmt.Sprint(got) != "map[s1:2 s2:2 s3:2]" {
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
				if fmt.Sprint(got) != "map[s1:2 s2:2 s3:2]" {
					t.Errorf("UDP %s: %v answer", at, got)
				}
			}
		})
	}
}
