package ipvs

import (
	"errors"
	"flag"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/testkit"
)

var benchServices = flag.Int("services", 50000, "services of BenchmarkProgramming, two servers each")

// benchFrontend is the i-th service, each with a VIP of its own.
func benchFrontend(i int) dataplane.Frontend {
	f := web(2)
	f.VIP = netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)})
	return f
}

// floor programs a service by the netlink calls alone, ready made: one for the
// service, each server and the address.
type floor struct {
	socket *socket
	routes *netlink.Handle
}

func (f floor) add(messages []message, route *netlink.Route) error {
	for _, m := range messages {
		failed, err := f.socket.do([]message{m})
		if err := errors.Join(err, failed[0]); err != nil {
			return err
		}
	}
	return f.routes.RouteAdd(route)
}

// BenchmarkProgramming measures programming from empty beside the netlink calls
// alone, a thousand services of each in turn; then one service more, and a
// restart over all.
func BenchmarkProgramming(b *testing.B) {
	ours, theirs := testkit.NetNS(b), testkit.NetNS(b)
	d, err := Open(Config{NetNS: ours.Path()})
	must(b, err)
	bare, err := Open(Config{NetNS: theirs.Path()})
	must(b, err)
	calls := floor{bare.socket, bare.routes}
	type ready struct {
		messages []message
		route    *netlink.Route
	}
	var all []ready
	for i := range *benchServices {
		f := benchFrontend(i)
		all = append(all, ready{changes(nil, recordOf(f, 0, 0)), bare.routeTo(f.VIP)})
	}

	for b.Loop() {
		var spent, alone, early time.Duration
		const turn = 1000
		for from := 0; from < *benchServices; from += turn {
			to := min(from+turn, *benchServices)
			alone += timed(b, from, to, func(i int) error { return calls.add(all[i].messages, all[i].route) })
			spent += timed(b, from, to, func(i int) error { return d.Upsert(benchFrontend(i)) })
			if from == 0 {
				early = one(b, d)
			}
		}
		late := one(b, d)
		b.ReportMetric(spent.Seconds(), "s/all")
		b.ReportMetric(alone.Seconds(), "s/floor")
		b.ReportMetric(spent.Seconds()/alone.Seconds(), "times-floor")
		b.ReportMetric(float64(early.Microseconds()), "µs/one-among-1000")
		b.ReportMetric(float64(late.Microseconds()), "µs/one-among-all")
		d = restart(b, d, ours.Path())
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

// one is the median time of a service more, of a hundred.
func one(b *testing.B, d *DataPlane) time.Duration {
	b.Helper()
	const more = 100
	var times []time.Duration
	for i := range more {
		times = append(times, timed(b, i, i+1, func(int) error { return d.Upsert(benchFrontend(1<<18 + i)) }))
	}
	for i := range more {
		must(b, d.Delete(benchFrontend(1<<18+i).Key))
	}
	slices.Sort(times)
	return times[more/2]
}

// restart opens the data plane anew over what is held, and fails where that or
// the same wishes again change anything.
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
