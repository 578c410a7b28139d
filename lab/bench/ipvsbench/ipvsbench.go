// Package ipvsbench measures how long it takes to add one service to many: with the IPVS
// data plane, with bare netlink calls, and as iptables rules like kube-proxy's. It needs
// a kernel with IPVS, which lab/uml has.
package ipvsbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/ipvs"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/netns"
)

// Options configures what is measured.
type Options struct {
	// Sizes contains the numbers of existing services, in ascending order.
	Sizes []int
	// Runs is how many single services are added at each size.
	Runs int
	// IPTables is the time limit for iptables at one size. After the first size that
	// exceeds it, larger ones are skipped.
	IPTables time.Duration
	// Progress receives progress messages.
	Progress io.Writer
}

// DefaultOptions returns the sizes of the published table, and one more.
func DefaultOptions() Options {
	return Options{Sizes: []int{1, 5000, 20000, 50000}, Runs: 101, IPTables: time.Minute}
}

// Validate reports which option is invalid.
func (o Options) Validate() error {
	switch {
	case len(o.Sizes) == 0 || !slices.IsSorted(o.Sizes) || o.Sizes[0] < 1 || o.Sizes[len(o.Sizes)-1] > 65536:
		return fmt.Errorf("--sizes: %v: want ascending numbers from 1 to 65536", o.Sizes)
	case o.Runs < 1 || o.Runs > 1000:
		return fmt.Errorf("--runs: %d is not between 1 and 1000", o.Runs)
	case o.IPTables < 0:
		return fmt.Errorf("--iptables: %s: want a time, or 0 for one run at the smallest size", o.IPTables)
	}
	return nil
}

// published contains the figures of "Scale Kubernetes to Support 50,000 Services" (slide
// "IPVS vs. IPTables Latency to Add Rules"), in ms.
var published = map[int]struct{ ipvs, iptables float64 }{
	1: {2, 2}, 5000: {2, 11 * 60e3}, 20000: {2, 5 * 3600e3},
}

// goal is the maximum time to add one service at any size, in ms. It equals the published
// figure.
const goal = 2

// frontend returns the i-th service, with its own VIP and two backends.
func frontend(i int) desired.Frontend {
	f := desired.Frontend{
		Key:    service.Key{VIP: netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)}), Port: 80, Protocol: service.TCP},
		Method: service.NAT, Scheduler: service.RoundRobin, Survival: service.FlowTable,
	}
	for n := range 2 {
		f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 0, byte(1 + n)}), 8080), Weight: 1})
	}
	return f
}

// Numbers from which the added services start. They do not collide with those of the
// existing services.
const (
	moreOurs = 1 << 17
	moreBare = 1 << 18
)

// Measure measures at every size. It must run in a sandbox.
func Measure(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("ipvs")
	r.Note("Times are in milliseconds, of one service with a VIP of its own and two servers, until the kernel has all of it.")
	r.Note("\"fairlead\" and \"netlink calls only\" alternate in one kernel; the latter are prepared in advance. \"restart\" is opening the data plane again and reading everything that is programmed.")
	r.Note("\"published\" are the figures of the slides \"Scale Kubernetes to Support 50,000 Services\", on another machine.")
	err := measureIPVS(ctx, o, r)
	if err == nil {
		err = measureIPTables(ctx, o, r)
	}
	if err != nil {
		return nil, fmt.Errorf("ipvs: %w", err)
	}
	return r, nil
}

func measureIPVS(ctx context.Context, o Options, r *bench.Report) (err error) {
	ns, err := netns.Create("bench-ipvs")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	d, err := ipvs.Open(ipvs.Config{NetNS: ns.Path()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	held := 0
	for _, size := range o.Sizes {
		fmt.Fprintf(o.Progress, "bench: IPVS, %d services\n", size)
		for ; held < size; held++ {
			if err := errors.Join(ctx.Err(), d.Upsert(frontend(held))); err != nil {
				return err
			}
		}
		ours, bare, err := oneMore(d, o.Runs)
		if err != nil {
			return err
		}
		row := bench.Plain(fmt.Sprintf("fairlead, one more among %d", size), "ms", ours...).AtMost(goal)
		if p, known := published[size]; known {
			row = row.ComparedWith("published, IPVS", p.ipvs)
		}
		row.Over = []bench.Ratio{bench.RatioTo("netlink calls only", ours, bare)}
		alone := bench.Plain(fmt.Sprintf("netlink calls only, one more among %d", size), "ms", bare...)
		again, err := restart(ns.Path(), size)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, row, alone, bench.Plain(fmt.Sprintf("restart over %d", size), "ms", again))
	}
	return nil
}

// oneMore adds services to the existing ones, alternating between the data plane and bare
// calls, and removes them all at the end. With 50,000 routes, alternating additions and
// removals would take the kernel a hundred times as long.
func oneMore(d *ipvs.DataPlane, runs int) (ours, bare []float64, err error) {
	var undo []func() error
	for i := range runs {
		f := frontend(moreOurs + i)
		add, remove := d.Bare(frontend(moreBare + i))
		undo = append(undo, remove, func() error { return d.Delete(f.Key) })
		took, failed := timed(func() error { return d.Upsert(f) })
		alone, failedAlone := timed(add)
		if err = errors.Join(failed, failedAlone); err != nil {
			break
		}
		ours, bare = append(ours, took), append(bare, alone)
	}
	for _, f := range undo {
		err = errors.Join(err, f())
	}
	return ours, bare, err
}

// restart reads the whole kernel state, as an agent does when it starts.
func restart(path string, held int) (took float64, err error) {
	var list []desired.Frontend
	took, err = timed(func() (err error) {
		d, err := ipvs.Open(ipvs.Config{NetNS: path})
		if err != nil {
			return err
		}
		list, err = d.List()
		return errors.Join(err, d.Close())
	})
	if err == nil && len(list) != held {
		err = fmt.Errorf("a restart reads %d services, want %d", len(list), held)
	}
	return took, err
}

// timed returns how long do takes, in ms.
func timed(do func() error) (took float64, err error) {
	began := time.Now()
	err = do()
	return time.Since(began).Seconds() * 1000, err
}
