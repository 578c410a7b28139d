package xdp

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/ring"
	"github.com/fairlead/fairlead/dataplane/xdp/internal/measure"
	"github.com/fairlead/fairlead/service"
)

// wide gives the i-th frontend of many, all with the same hundred servers. They
// have begun at three different times, so that most slots name an older owner.
func wide(i, ringSize int) dataplane.Frontend {
	f := frontend(service.Tunnel, fmt.Sprintf("10.%d.%d.%d:80", 64+i>>16, i>>8&255, i&255), service.TCP)
	f.RingSize = ringSize
	for j := range 100 {
		f.Backends = append(f.Backends, service.Backend{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 9, byte(j + 1)}), 8080), Weight: 1,
			Since: time.Unix(int64(1700000000+j/98), 0),
		})
	}
	return f
}

// roomy has room for everything that is measured.
func roomy() Config {
	c := config()
	c.MaxFrontends, c.MaxBackends, c.MaxMembers = 16384, 1024, 1<<20
	return c
}

// BenchmarkFill writes 10,000 frontends with 100 servers, which they share, on
// rings of 7,477 slots. cpu-s is the CPU time, where others use the machine too.
func BenchmarkFill(b *testing.B) {
	const frontends, ringSize = 10000, 7477
	n := newNet(b)
	for b.Loop() {
		d := n.open(b, roomy())
		began, cpu := time.Now(), newStopwatch(b)
		for i := range frontends {
			upsert(b, d, wide(i, ringSize))
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/fill")
		b.ReportMetric(cpu.stop(b).Seconds(), "cpu-s/fill")
		b.ReportMetric(float64(segmentsOf(d))*float64(d.ringMemory.spec.MaxEntries)*8/1e6, "MB-of-rings")
		must(b, d.Detach())
		n.current = nil
	}
}

// stopwatch measures the CPU time of one thread, which it holds.
type stopwatch time.Duration

func newStopwatch(b *testing.B) stopwatch {
	runtime.LockOSThread()
	began, err := measure.ThreadTime()
	must(b, err)
	return stopwatch(began)
}

func (s stopwatch) stop(b *testing.B) time.Duration {
	ended, err := measure.ThreadTime()
	must(b, err)
	runtime.UnlockOSThread()
	return ended - time.Duration(s)
}

func segmentsOf(d *DataPlane) (n int) {
	for _, s := range d.ringMemory.segments {
		if s != nil {
			n++
		}
	}
	return n
}

// BenchmarkChange replaces one of 100 servers on a ring of 65,537 slots, each
// time another one: servers whose age nobody tells, and those of which the
// latest is always the youngest.
func BenchmarkChange(b *testing.B) {
	b.Run("no ages", func(b *testing.B) { benchmarkChange(b, false) })
	b.Run("ages", func(b *testing.B) { benchmarkChange(b, true) })
}

func benchmarkChange(b *testing.B, ages bool) {
	n := newNet(b)
	d := n.open(b, roomy())
	f := wide(0, 65537)
	if !ages {
		for j := range f.Backends {
			f.Backends[j].Since = time.Time{}
		}
	}
	upsert(b, d, f)
	var moved float64
	var spent, slowest time.Duration
	i := 0
	for b.Loop() {
		b.StopTimer()
		before := d.readRing(d.held[f.Key], nil)
		one := &f.Backends[i%100]
		gone := d.held[f.Key].members.find(one.Addr).id
		one.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(10 + i%200), byte(i%100 + 1)}), 8080)
		if ages {
			one.Since = time.Unix(int64(1800000000+i), 0)
		}
		want := f
		want.Backends = service.SortBackends(slices.Clone(f.Backends))
		b.StartTimer()
		cpu := newStopwatch(b)
		upsert(b, d, want)
		took := cpu.stop(b)
		b.StopTimer()
		spent, slowest = spent+took, max(slowest, took)
		fresh := d.held[f.Key].members.find(one.Addr).id
		moved = max(moved, movedShare(before, d.readRing(d.held[f.Key], nil), gone, fresh))
		i++
		b.StartTimer()
	}
	b.ReportMetric(100*moved, "%-moved-at-most")
	b.ReportMetric(float64(spent.Microseconds())/float64(i), "cpu-µs/change")
	b.ReportMetric(float64(slowest.Microseconds()), "cpu-µs-slowest")
}

// movedShare gives the share of the slots that changed from one server to
// another though both were there before and after.
func movedShare(before, after []ring.Slot, gone, fresh ring.ID) float64 {
	moved := 0
	for i := range before {
		was, is := before[i].First, after[i].First
		if was != is && was != gone && is != fresh {
			moved++
		}
	}
	return float64(moved) / float64(len(before))
}
