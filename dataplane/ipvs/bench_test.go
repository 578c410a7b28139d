package ipvs

import (
	"errors"
	"flag"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/lab/testkit"
)

var benchServices = flag.Int("services", 50000, "services of BenchmarkProgramming, two servers each")

// benchFrontend is the i-th service, each with its own VIP.
func benchFrontend(i int) desired.Frontend {
	f := web(2)
	f.VIP = netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)})
	return f
}

// BenchmarkProgramming compares programming from empty with the netlink calls only,
// alternating, a thousand services each; then one more service, and a restart with all of
// them.
func BenchmarkProgramming(b *testing.B) {
	ours, theirs := testkit.NetNS(b), testkit.NetNS(b)
	d, err := Open(Config{NetNS: ours.Path()})
	must(b, err)
	bare, err := Open(Config{NetNS: theirs.Path()})
	must(b, err)
	type ready struct{ add, remove func() error }
	made := map[int]ready{}
	add := func(i int) error { return made[i].add() }
	upsert := func(i int) error { return d.Upsert(benchFrontend(i)) }
	prepare := func(from, to int) {
		for i := from; i < to; i++ {
			add, remove := bare.Bare(benchFrontend(i))
			made[i] = ready{add, remove}
		}
	}
	prepare(0, *benchServices)
	prepare(1<<18, 1<<18+100)

	for b.Loop() {
		var spent, alone, early, earlyAlone time.Duration
		const turn = 1000
		for from := 0; from < *benchServices; from += turn {
			to := min(from+turn, *benchServices)
			alone += timed(b, from, to, add)
			spent += timed(b, from, to, upsert)
			if from == 0 {
				early, earlyAlone = one(b, upsert), one(b, add)
				for i := range 100 {
					must(b, errors.Join(d.Delete(benchFrontend(1<<18+i).Key), made[1<<18+i].remove()))
				}
			}
		}
		late, lateAlone := one(b, upsert), one(b, add)
		for i := range 100 {
			must(b, d.Delete(benchFrontend(1<<18+i).Key))
		}
		b.ReportMetric(spent.Seconds(), "s/all")
		b.ReportMetric(alone.Seconds(), "s/floor")
		b.ReportMetric(spent.Seconds()/alone.Seconds(), "times-floor")
		b.ReportMetric(float64(early.Microseconds()), "µs/one-among-1000")
		b.ReportMetric(float64(earlyAlone.Microseconds()), "µs/one-among-1000-floor")
		b.ReportMetric(float64(late.Microseconds()), "µs/one-among-all")
		b.ReportMetric(float64(lateAlone.Microseconds()), "µs/one-among-all-floor")
		d = restart(b, d, ours.Path())
		questions(b, d)
		must(b, d.Detach())
		must(b, bare.Detach())
	}
}

func timed(b *testing.B, from, to int, do func(int) error) time.Duration {
	b.Helper()
	began := time.Now()
	for i := from; i < to; i++ {
		if err := do(i); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// one is the median time to add one service, out of a hundred.
func one(b *testing.B, add func(int) error) time.Duration {
	b.Helper()
	const more = 100
	var times []time.Duration
	for i := range more {
		times = append(times, timed(b, 1<<18+i, 1<<18+i+1, add))
	}
	slices.Sort(times)
	return times[more/2]
}

// restart reopens the data plane, and fails if that or repeating the same desired state
// changes anything.
func restart(b *testing.B, d *DataPlane, path string) *DataPlane {
	b.Helper()
	must(b, d.Close())
	began := time.Now()
	d, err := Open(Config{NetNS: path})
	must(b, err)
	list, err := d.List()
	must(b, err)
	took := time.Since(began)
	if len(list) != *benchServices {
		b.Fatalf("lists %d, want %d", len(list), *benchServices)
	}
	asked := d.socket.seq
	for i := range *benchServices {
		must(b, d.Upsert(benchFrontend(i)))
	}
	if n := d.socket.seq - asked; n > 0 {
		b.Errorf("%d messages changed something", n)
	}
	b.ReportMetric(took.Seconds(), "s/restart")
	return d
}

// questions measures only the system calls with which a restart reads every service's
// backends: two each, prepared in advance.
func questions(b *testing.B, d *DataPlane) {
	b.Helper()
	var ready []message
	for i := range *benchServices {
		ready = append(ready, aboutService(cmdGetDest, unix.NLM_F_DUMP, recordOf(benchFrontend(i), 0, 0).serviceID))
		d.socket.address(ready[i])
	}
	began := time.Now()
	for _, m := range ready {
		must(b, d.socket.sendQuick(m))
		if n, err := d.socket.in.take(d.socket.fd); n != 2 || err != nil {
			b.Fatalf("%d datagrams, %v; want the servers and an end", n, err)
		}
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/restart-calls")
}
