package proxy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
)

// many returns Services with the given number of endpoints each, a third of them on n0.
func many(count, endpoints int) ([]*proxy.Service, [][]*proxy.Slice) {
	services, slices := make([]*proxy.Service, count), make([][]*proxy.Slice, count)
	nodes := []string{"n0", "n1", "n2"}
	for i := range services {
		name := fmt.Sprintf("svc-%d", i)
		services[i] = &proxy.Service{
			ID:         service.ID{Namespace: "default", Name: name},
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
			Ports:      []proxy.ServicePort{{Protocol: service.TCP, Port: 80}},
		}
		sl := &proxy.Slice{
			ID: proxy.SliceID{Namespace: "default", Name: name + "-1"}, Service: name,
			Ports: []proxy.SlicePort{{Protocol: service.TCP, Port: 8080}},
		}
		for j := range endpoints {
			k := (i*endpoints + j) * 7919 % (1 << 22) // unordered
			sl.Endpoints = append(sl.Endpoints, proxy.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, byte(100 + k>>16), byte(k >> 8), byte(k)}), Node: nodes[j%3], Ready: true, Serving: true,
			})
		}
		slices[i] = []*proxy.Slice{sl}
	}
	return services, slices
}

// BenchmarkBuild builds all frontends of large clusters. All its allocations are retained
// by the frontends.
func BenchmarkBuild(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{50_000, 3}, {5_000, 50}} {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			services, slices := many(size.services, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				for i := range services {
					_, _ = proxy.Build(services[i], slices[i], proxy.Node{Name: "n0"})
				}
			}
		})
	}
}
