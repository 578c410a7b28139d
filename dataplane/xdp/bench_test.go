package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/cputime"
)

// benchFrontends have rings of the default size and three backends each.
func benchFrontends(n int) []desired.Frontend {
	all := make([]desired.Frontend, n)
	for i := range all {
		backends := make([]string, 3)
		for j := range backends {
			backends[j] = fmt.Sprintf("172.20.%d.%d:80", i*3%1000/250, i*3%250+j+1)
		}
		all[i] = frontend(service.Tunnel, fmt.Sprintf("10.3.%d.%d:80", i/250, i%250+1), service.TCP, backends...)
		all[i].RingSize = 16381
	}
	return all
}

func benchPlane(b *testing.B, frontends int) *DataPlane {
	c := config()
	c.MaxFrontends, c.MaxBackends = 2*frontends, 4096
	return newNet(b).open(b, c)
}

// cpuTime reports the process's CPU time per iteration, without what the returned function
// excludes: it is steadier than the time on a busy machine.
func cpuTime(b *testing.B) (pause func(func())) {
	began, paused := cputime.Process(), time.Duration(0)
	b.Cleanup(func() { b.ReportMetric(float64(cputime.Process()-began-paused)/float64(b.N), "cpu-ns/op") })
	return func(do func()) {
		b.StopTimer()
		from := cputime.Process()
		do()
		paused += cputime.Process() - from
		b.StartTimer()
	}
}

// BenchmarkUpsertNew programs frontends that do not exist.
func BenchmarkUpsertNew(b *testing.B) {
	all := benchFrontends(500)
	d := benchPlane(b, len(all))
	b.ReportAllocs()
	pause := cpuTime(b)
	for b.Loop() {
		must(b, d.Reserve(all))
		for _, f := range all {
			must(b, d.Upsert(f))
		}
		pause(func() { deleteAll(b, d, all) })
	}
}

func deleteAll(b *testing.B, d *DataPlane, all []desired.Frontend) {
	for _, f := range all {
		must(b, d.Delete(f.Key))
	}
	must(b, d.grace())
}

// BenchmarkUpsertBackend adds and removes one of 20 backends: the ring changes in place.
func BenchmarkUpsertBackend(b *testing.B) {
	f := benchFrontends(1)[0]
	d := benchPlane(b, 8)
	var backends []string
	for i := range 20 {
		backends = append(backends, fmt.Sprintf("172.20.0.%d:80", i+1))
	}
	less, more := f, f
	less.Backends = frontend(service.Tunnel, vips[false], service.TCP, backends[:19]...).Backends
	more.Backends = frontend(service.Tunnel, vips[false], service.TCP, backends...).Backends
	b.ReportAllocs()
	cpuTime(b)
	for b.Loop() {
		must(b, d.Upsert(more))
		must(b, d.Upsert(less))
	}
}

// BenchmarkUpsertShared programs frontends with the same 100 backends, and then changes one
// of the backends in all of them.
func BenchmarkUpsertShared(b *testing.B) {
	var backends []string
	for i := range 100 {
		backends = append(backends, fmt.Sprintf("172.20.0.%d:80", i+1))
	}
	all := make([]desired.Frontend, 1000)
	for i := range all {
		all[i] = frontend(service.Tunnel, fmt.Sprintf("10.3.%d.%d:80", i/250, i%250+1), service.TCP, backends...)
		all[i].RingSize = 8191
	}
	c := config()
	c.MaxFrontends, c.MaxBackends, c.MaxMembers = 2*len(all), 4096, 200*len(all)
	d := newNet(b).open(b, c)
	put := func(frontends []desired.Frontend) {
		for _, f := range frontends {
			must(b, d.Upsert(f))
		}
	}
	changed := slices.Clone(all)
	for i := range changed {
		changed[i].Backends = changed[i].Backends[:99]
	}
	b.Run("new", func(b *testing.B) {
		pause := cpuTime(b)
		for b.Loop() {
			must(b, d.Reserve(all))
			put(all)
			pause(func() {
				for _, f := range all {
					must(b, d.Delete(f.Key))
				}
				must(b, d.grace())
			})
		}
	})
	put(all)
	b.Run("change", func(b *testing.B) {
		cpuTime(b)
		for i := 0; b.Loop(); i++ {
			put([][]desired.Frontend{changed, all}[i%2])
		}
	})
}

// BenchmarkUpsertMoved alternates between methods: the ring is written elsewhere.
func BenchmarkUpsertMoved(b *testing.B) {
	one := benchFrontends(1)[0]
	other := one
	other.Method = service.DSRNAT
	d := benchPlane(b, 8)
	b.ReportAllocs()
	cpuTime(b)
	for b.Loop() {
		must(b, d.Upsert(one))
		must(b, d.Upsert(other))
	}
}

// BenchmarkFill programs frontends with 100 of 10,000 backends each.
func BenchmarkFill(b *testing.B) {
	for name, survival := range map[string]service.Survival{"second-chance": service.SecondChance, "flow-table": service.FlowTable} {
		b.Run(name, func(b *testing.B) { benchFill(b, 2000, survival) })
	}
}

func benchFill(b *testing.B, frontends int, survival service.Survival) {
	all := make([]desired.Frontend, frontends)
	for i := range all {
		all[i] = frontend(service.Tunnel, fmt.Sprintf("10.3.%d.%d:80", i/250, i%250+1), service.TCP)
		all[i].RingSize, all[i].Survival = 8191, survival
		for j := range 100 {
			n := (i*61 + j*97) % 10000
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 20, byte(n / 250), byte(n%250 + 1)}), 8080)
			all[i].Backends = append(all[i].Backends, service.Backend{Addr: addr, Weight: 1})
		}
		all[i].Backends = service.SortBackends(all[i].Backends)
	}
	c := config()
	c.MaxFrontends, c.MaxBackends, c.MaxMembers = 2*frontends, 101*frontends, 200*frontends
	d := newNet(b).open(b, c)
	pause := cpuTime(b)
	for b.Loop() {
		must(b, d.Reserve(all))
		for _, f := range all {
			must(b, d.Upsert(f))
		}
		pause(func() { deleteAll(b, d, all) })
	}
}
