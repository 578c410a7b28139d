package schedule

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

func flow(client, vip string, port uint16, protocol service.Protocol) Flow {
	return Flow{netip.MustParseAddrPort(client), service.Key{VIP: netip.MustParseAddr(vip), Port: port, Protocol: protocol}}
}

// Load balancers of different versions share the hash: it must never change.
func TestHashIsReproducible(t *testing.T) {
	for f, want := range map[Flow]uint32{
		flow("192.168.0.2:40000", "10.1.1.1", 80, service.TCP):                 0x34fdb0e9,
		flow("192.168.0.2:40001", "10.1.1.1", 80, service.TCP):                 0xc6b96a02,
		flow("192.168.0.2:40000", "10.1.1.1", 53, service.UDP):                 0xf852ba47,
		flow("[2001:db8::2]:40000", "2001:db8:1::1", 443, service.TCP):         0x8730a523,
		flow("[::ffff:192.168.0.2]:40000", "::ffff:10.1.1.1", 80, service.TCP): 0x34fdb0e9,
	} {
		if got := Hash(f); got != want {
			t.Errorf("Hash(%v) = %#x, want %#x", f, got, want)
		}
	}
}

// The BPF program must return the same values: dataplane/xdp, TestAddrHash.
func TestAddrHashIsReproducible(t *testing.T) {
	for a, want := range map[string]uint32{
		"10.1.1.1": 0x303ac0ec, "::ffff:10.1.1.1": 0x303ac0ec, "10.1.1.2": 0xa22f4f7e, "2001:db8:1::1": 0xc0da3035, "::": 0,
	} {
		if got := AddrHash(netip.MustParseAddr(a)); got != want {
			t.Errorf("AddrHash(%s) = %#x, want %#x", a, got, want)
		}
	}
}

// Neighboring clients and ports must not map to neighboring slots: chi squared over 64
// cells stays near its expectation of 63.
func TestHashSpreads(t *testing.T) {
	const flows, cells = 64000, 64
	for name, nth := range map[string]func(i int) Flow{
		"ports": func(i int) Flow {
			return flow(fmt.Sprintf("192.168.0.2:%d", 1024+i), "10.1.1.1", 80, service.TCP)
		},
		"clients": func(i int) Flow {
			return flow(fmt.Sprintf("10.%d.%d.%d:1234", i>>14, i>>7&127, i&127), "10.1.1.1", 80, service.TCP)
		},
		"IPv6 clients": func(i int) Flow {
			return flow(fmt.Sprintf("[2001:db8::%x]:1234", i), "2001:db8:1::1", 80, service.TCP)
		},
	} {
		var count [cells]float64
		for i := range flows {
			count[slot(Hash(nth(i)), cells)]++
		}
		chi := 0.0
		for _, n := range count {
			chi += math.Pow(n-flows/cells, 2) / (flows / cells)
		}
		if chi > 120 {
			t.Errorf("%s: chi squared is %.0f", name, chi)
		}
	}
}
