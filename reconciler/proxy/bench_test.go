package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/cputime"
)

// void is a plane that does nothing.
type void struct{}

func (void) Apply([]proxy.Frontend, []proxy.Key) error { return nil }
func (void) Keys() []proxy.Key                         { return nil }
func (void) Check(context.Context) error               { return nil }
func (void) SetNodeAddresses([]netip.Addr) error       { return nil }
func (void) Close() error                              { return nil }

// cluster returns a number of Services with three endpoints each.
func cluster(count int) ([]*proxy.Service, []*proxy.Slice) {
	services, all := make([]*proxy.Service, count), make([]*proxy.Slice, count)
	for i := range services {
		name := fmt.Sprint("svc-", i)
		services[i] = svc(name, netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String(), i)
		all[i] = eps(name+"-1", name)
		for j := range 3 {
			k := 3*i + j
			all[i].Endpoints = append(all[i].Endpoints, proxy.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, byte(128 + k>>16), byte(k >> 8), byte(k)}), Node: "n2", Ready: true, Serving: true,
			})
		}
	}
	return services, all
}

func filled(services []*proxy.Service, all []*proxy.Slice) *Loop {
	l := New(Config{Plane: void{}, Log: slog.New(slog.DiscardHandler)})
	l.SetNode(proxy.Node{Name: "n1"})
	for i := range services {
		l.SetService(services[i])
		l.SetSlice(all[i])
	}
	l.Loaded()
	l.pass(context.Background())
	return l
}

// BenchmarkColdStart passes 50,000 Services to a loop and lets it decide on them. It
// reports the memory that the loop then uses in addition to its input, and the CPU time,
// which is less affected by other load on the machine.
func BenchmarkColdStart(b *testing.B) {
	const count = 50_000
	services, all := cluster(count)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var l *Loop
	used := cputime.Process()
	for b.Loop() {
		l = nil
		l = filled(services, all)
	}
	b.ReportMetric(float64(cputime.Process()-used)/float64(b.N)/1e6, "cpu-ms/op")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/count, "bytes-kept/service")
	if v := l.View(); v.Frontends != count {
		b.Errorf("%d frontends, want %d", v.Frontends, count)
	}
	runtime.KeepAlive(all)
}

// BenchmarkChange changes one endpoint, among few Services and among many: the cost must
// be the same.
func BenchmarkChange(b *testing.B) {
	for _, count := range []int{10, 50_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			services, all := cluster(count)
			l := filled(services, all)
			other := *all[3]
			other.Endpoints = other.Endpoints[:2]
			turn := 0
			for b.Loop() {
				l.SetSlice([]*proxy.Slice{all[3], &other}[turn%2])
				l.pass(b.Context())
				turn++
			}
			if l.View().Set < uint64(count) {
				b.Error("nothing was written")
			}
		})
	}
}

// BenchmarkConflicts lets all Services claim one key and deletes the oldest, 1,000 times.
func BenchmarkConflicts(b *testing.B) {
	for b.Loop() {
		l := New(Config{Plane: void{}, Log: slog.New(slog.DiscardHandler)})
		for i := range 1000 {
			l.SetService(svc(fmt.Sprint("s", i), "10.96.0.1", i))
		}
		l.Loaded()
		l.pass(b.Context())
		for i := range 1000 {
			l.DeleteService(service.ID{Namespace: "default", Name: fmt.Sprint("s", i)})
			l.pass(b.Context())
		}
		if v := l.View(); v.Frontends != 0 || v.Services != 0 || time.Since(v.LastSync) < 0 {
			b.Fatalf("%+v", v)
		}
	}
}
