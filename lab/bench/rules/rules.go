// Package rules compares ways to program Services in one kernel: a linear list of
// iptables rules like kube-proxy's, the same as a search tree, nftables maps, IPVS, and
// Fairlead's eBPF maps. It does not involve an API server. It measures the cost of adding
// one Service, and of connecting to the first, the middle and the last one ("Scale
// Kubernetes to support 50,000 services", its slides on iptables and IPVS), and what
// batching changes saves (batches.go).
package rules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/ipvsbench"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// The names of the ways.
const (
	Linear   = "iptables"
	Tree     = "iptables-tree"
	NFTables = "nftables"
	IPVS     = "ipvs"
	EBPF     = "ebpf"
)

// Ways contains all of them.
var Ways = []string{Linear, Tree, NFTables, IPVS, EBPF}

// Options configures what is compared.
type Options struct {
	// Services contains the numbers of Services to compare, in ascending order.
	Services []int
	Ways     []string
	// Endpoints is the number of endpoints of each Service.
	Endpoints int
	// Adds is how often adding a Service is measured, Connects the number of connections.
	Adds, Connects int
	// Transfers is how often each bandwidth is measured, with iptables and IPVS only; 0
	// means never. Services have four ports then.
	Transfers int
	// Limit is the time limit for one way to write one number of Services. If it is
	// exceeded, larger numbers are skipped for that way.
	Limit time.Duration
	// Batches contains the numbers of Services behind which pods come up (0: none), Rate
	// pods per second. Changes are batched for Window, at most for MaxDelay.
	Batches          []int
	Rate             int
	Window, MaxDelay time.Duration
	Progress         io.Writer
}

// DefaultOptions returns the numbers of the slides.
func DefaultOptions() Options {
	return Options{
		Services: []int{1, 1000, 5000, 20_000, 50_000}, Ways: Ways, Endpoints: 3, Adds: 5, Connects: 500, Limit: time.Minute,
		Batches: []int{100, 150, 200}, Rate: 500, Window: proxy.DefaultWindow, MaxDelay: proxy.DefaultMaxDelay,
	}
}

// Validate reports which options are invalid.
func (o Options) Validate() error {
	var errs []error
	if len(o.Services) == 0 || slices.Min(o.Services) < 1 || slices.Max(o.Services) > mostServices || !slices.IsSorted(o.Services) {
		errs = append(errs, fmt.Errorf("--services: want growing numbers from 1 to %d", mostServices))
	}
	for _, w := range o.Ways {
		if !slices.Contains(Ways, w) {
			errs = append(errs, fmt.Errorf("--only: %q is not one of %s", w, strings.Join(Ways, ", ")))
		}
	}
	if o.Endpoints < 1 || o.Endpoints > 10 || o.Adds < 0 || o.Connects < 1 || o.Limit < time.Second {
		errs = append(errs, errors.New("--endpoints, --adds, --connects, --limit: want 1 to 10; at least 0; 1; 1s"))
	}
	if o.Transfers < 0 || o.Transfers > 0 && slices.ContainsFunc(o.Ways, func(w string) bool { return w != Linear && w != IPVS }) {
		errs = append(errs, fmt.Errorf("--transfers: want a positive number, with --only %s,%s", Linear, IPVS))
	}
	if len(o.Batches) == 0 || slices.Min(o.Batches) < 0 || slices.Max(o.Batches) > 10_000 || o.Rate < 1 || o.Rate > 10_000 {
		errs = append(errs, errors.New("--batches, --rate: want numbers from 1 to 10000, or 0 for no batches"))
	}
	if o.Window < 0 || o.MaxDelay < o.Window || o.MaxDelay > 10*time.Second {
		errs = append(errs, fmt.Errorf("--window, --max-delay: want times from 0s to 10s, the first not longer than the second"))
	}
	return errors.Join(errs...)
}

// mostServices is the maximum number of Services, limited by the available addresses.
const mostServices = 200_000

// way is one of the ways to program Services 0, 1, 2 ...
type way interface {
	// fill programs n Services. Afterwards, Services that follow may be programmed, too, if
	// they were before.
	fill(ctx context.Context, n int) error
	// add programs one more.
	add(ctx context.Context, i int) error
	// clear removes everything.
	clear(ctx context.Context) error
}

// InGuest is Run in a guest that has IPVS, without batches.
func InGuest(ctx context.Context, o Options) (*bench.Report, error) {
	return ipvsbench.InGuest(ctx, "bench", "rules", "--output", "json", "--out", sandbox.WorkDir, "--only", strings.Join(o.Ways, ","), "--services", ipvsbench.Joined(o.Services),
		"--endpoints", fmt.Sprint(o.Endpoints), "--adds", fmt.Sprint(o.Adds), "--connects", fmt.Sprint(o.Connects), "--transfers", fmt.Sprint(o.Transfers), "--limit", o.Limit.String(), "--batches", "0")
}

// Run runs the comparison. It needs the sandbox, with its own network.
func Run(ctx context.Context, o Options) (report *bench.Report, err error) {
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return nil, err
	}
	g, err := testbed.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	report = bench.New("rules")
	report.Note("%d endpoints a Service; figures of the slides are of other machines, of 2017, with 8 rules a Service", o.Endpoints)
	if o.Transfers > 0 {
		sink, err := echo()
		if err != nil {
			return nil, err
		}
		defer sink.Close()
	}
	for _, name := range o.Ways {
		w := o.open(name, g)
		for _, n := range o.Services {
			rows, err := o.measure(ctx, name, w, n)
			report.Rows = append(report.Rows, rows...)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				report.Note("%s: %d Services, and %d one by one, were not programmed within %s", name, n, o.Adds, o.Limit)
				break
			}
			if err != nil {
				return report, errors.Join(fmt.Errorf("%s, %d Services: %w", name, n, err), w.clear(ctx))
			}
		}
		if name == IPVS && name == o.Ways[len(o.Ways)-1] {
			break // removing 200,000 takes minutes, and they end with the namespace
		}
		if err := w.clear(ctx); err != nil {
			return report, err
		}
	}
	rows, err := o.batches(ctx, g)
	report.Rows = append(report.Rows, rows...)
	if len(rows) > 0 {
		report.Note("pods come up %d a second, in no order; the slides' requests are those of the endpoints controller to the API server, on other machines", o.Rate)
	}
	return report, err
}

func (o Options) open(name string, g *testbed.Ground) way {
	s := shape{o.Endpoints, single}
	if o.Transfers > 0 {
		s.ports = several
	}
	switch name {
	case Linear:
		return &tables{shape: s}
	case Tree:
		return &tables{shape: s, tree: true}
	case NFTables:
		return maps{s}
	case IPVS:
		return &virtual{shape: s}
	}
	return &plane{shape: s, ground: g}
}

// measure returns the rows of one way with n Services.
func (o Options) measure(ctx context.Context, name string, w way, n int) (rows []bench.Row, err error) {
	row := func(text, unit string, values ...float64) {
		r := bench.Plain(fmt.Sprintf("%s, %d Services: %s", name, n, text), unit, values...)
		r.Raw = nil
		if theirs, known := slides[name][n]; known && text == oneMore {
			r = r.ComparedWith("slides:", theirs)
		}
		rows = append(rows, r)
		fmt.Fprintf(o.Progress, "%s: %.4g %s\n", r.Case, r.Measured, unit)
	}
	limited, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	if o.Transfers == 0 { // from none
		if err := w.clear(ctx); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := w.fill(limited, n); err != nil {
		return nil, errors.Join(err, limited.Err())
	}
	if o.Transfers == 0 {
		row("all written", "s", time.Since(began).Seconds())
	}
	var adds []float64
	for i := range o.Adds {
		began := time.Now()
		if err := w.add(limited, n+i); err != nil {
			return rows, errors.Join(err, limited.Err())
		}
		adds = append(adds, float64(time.Since(began))/float64(time.Millisecond))
	}
	if o.Adds > 0 {
		row(oneMore, "ms", adds...)
	}
	for _, at := range []position{{"first", 0}, {"middle", n / 2}, {"last", n - 1}} {
		took, err := o.connects(kube.ServiceAddr(at.i))
		if err != nil {
			return rows, err
		}
		row("connect to the "+at.name, "µs", took...)
	}
	return rows, o.bandwidths([]position{{"first", 0}, {"last", n - 1}}, row)
}

const oneMore = "one more"

// position is the place of a Service in the order in which Services are programmed.
type position struct {
	name string
	i    int
}

// slides contains the milliseconds to add a rule, by the number of Services.
var slides = map[string]map[int]float64{
	Linear: {1: 2, 5000: 11 * 60 * 1000, 20_000: 5 * 3600 * 1000},
	IPVS:   {1: 2, 5000: 2, 20_000: 2},
}

// connects returns how long each connection to a Service takes, in microseconds.
func (o Options) connects(to netip.Addr) (all []float64, err error) {
	for range o.Connects {
		took, _, err := testbed.Request(to, 10*time.Second)
		if err != nil {
			return nil, err
		}
		all = append(all, float64(took)/float64(time.Microsecond))
	}
	return all, nil
}
