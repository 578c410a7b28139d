// Package migration moves a web service between two clusters under load, as the papers
// about portable load balancers describe it: the cluster at the new place starts with the
// same manifest, the routers learn its routes, and the old one ends. It counts the
// requests and connections that are lost.
package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run in the lab.
	Binary string
	// Rounds is how often the service moves, in each way.
	Rounds int
	// Rate is the number of requests per second with their own connection, and of those
	// on connections that stay open.
	Rate float64
	// Settle is the time before and between the steps of a move.
	Settle time.Duration
	// Progress receives progress messages.
	Progress io.Writer
}

// DefaultOptions returns the options behind the published figures.
func DefaultOptions() Options {
	return Options{Rounds: 3, Rate: 200, Settle: 2 * time.Second, Progress: io.Discard}
}

// The ways to move.
const (
	// Apart is the papers' way: the clusters know nothing of each other.
	Apart = "clusters apart"
	// Together lists the old cluster's pods at the new one, until they end.
	Together = "old pods listed at the new cluster"
)

// The names of the sites.
const oldSite, newSite = "old", "new"

// Ways contains them.
var Ways = []string{Apart, Together}

// kept is the number of connections that stay open.
const kept = 32

// patience is the timeout of a request: one that is only slow, on a busy machine, is not
// lost.
const patience = 20 * time.Second

// Run moves a service. It must run in the sandbox.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("migration")
	for _, way := range Ways {
		var all []moved
		for i := range o.Rounds {
			fmt.Fprintf(o.Progress, "migration: %s, round %d of %d\n", way, i+1, o.Rounds)
			m, err := o.once(ctx, way)
			if err != nil {
				return r, fmt.Errorf("%s: %w", way, err)
			}
			fmt.Fprintf(o.Progress, "  %d requests, %d failed, %d connections broke %v\n", m.counts.Requests, m.counts.Failed, m.counts.BrokenConnections, m.counts.Reasons)
			all = append(all, m)
		}
		r.Rows = append(r.Rows, rows(way, all)...)
	}
	r.Note("migration: %g requests a second with their own connection, and %g on %d connections that stay open; until the old load balancer has ended, both clusters run", o.Rate, o.Rate, kept)
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("not cleaned up: %v", left)
	}
	return r, nil
}

// moved is one move.
type moved struct {
	// advertised is the time from the start of the new cluster until the router sends it
	// packets, left that from the signal to the old load balancer until the router sends
	// it none, and drained until its process has ended.
	advertised, left, drained time.Duration
	counts                    load.Counts
	// requests contains the good answers of both clusters in each second since the router
	// sends none to the old one.
	requests map[string]map[int]float64
}

// The names of times.
const (
	Advertised = "the new cluster starts, until the router sends it packets"
	Withdrawn  = "the old load balancer drains, until the router sends it none"
)

// First and Last are the seconds of a move that are recorded.
const First, Last = -8, 4

func rows(way string, all []moved) (rows []bench.Row) {
	row := func(what, unit string, of func(moved) float64) {
		var figures []float64
		for _, m := range all {
			figures = append(figures, of(m))
		}
		rows = append(rows, bench.Plain(way+": "+what, unit, figures...))
	}
	row(Advertised, "ms", func(m moved) float64 { return ms(m.advertised) })
	row(Withdrawn, "ms", func(m moved) float64 { return ms(m.left) })
	row("until its process has ended", "ms", func(m moved) float64 { return ms(m.drained) })
	row("requests", "", func(m moved) float64 { return float64(m.counts.Requests) })
	row("requests failed", "", func(m moved) float64 { return float64(m.counts.Failed) })
	row("connections broken", "", func(m moved) float64 { return float64(m.counts.BrokenConnections) })
	for _, name := range []string{oldSite, newSite} {
		for second := First; second <= Last; second++ {
			row(fmt.Sprintf("%s cluster, second %d", name, second), "requests", func(m moved) float64 { return m.requests[name][second] })
		}
	}
	return rows
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// perSecond adds up the answers of each site by seconds since a moment.
func perSecond(bins []load.Bin, since time.Duration, sites ...*site) map[string]map[int]float64 {
	all := map[string]map[int]float64{}
	for _, s := range sites {
		all[s.name] = map[int]float64{}
		for i, bin := range bins {
			at := time.Duration(i)*load.BinLength - since
			for name := range s.servers {
				all[s.name][int(math.Floor(at.Seconds()))] += float64(bin.PerServer[name])
			}
		}
	}
	return all
}

// once moves the service from a cluster to another one.
func (o Options) once(ctx context.Context, way string) (m moved, err error) {
	old, next := makeSite(oldSite, 1), makeSite(newSite, 2)
	for _, s := range []*site{old, next} {
		if err := os.MkdirAll(s.manifests, 0o755); err != nil {
			return m, err
		}
	}
	n, err := newNetwork(ctx, o, old, next)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := errors.Join(old.expose(), n.bringUp(old)); err != nil {
		return m, err
	}
	if _, err := n.routed(ctx, old); err != nil {
		return m, err
	}
	c, err := load.Start(ctx, load.Config{Dial: n.lab.Host("client").Dial, Locals: clientAddrs(), Target: vip, KeepAlive: kept, KeepAliveRate: o.Rate, OneShotRate: o.Rate, Timeout: patience})
	if err != nil {
		return m, err
	}
	defer c.Stop()
	if err := errors.Join(bench.Pause(ctx, o.Settle), m.begin(ctx, o, n, way, old, next), bench.Pause(ctx, o.Settle)); err != nil {
		return m, err
	}
	withdrawn, err := m.end(ctx, o, n, way, old, next)
	if err != nil {
		return m, err
	}
	if err := errors.Join(bench.Pause(ctx, time.Until(withdrawn.Add((Last+1)*time.Second))), c.Settle(ctx)); err != nil {
		return m, err
	}
	c.Stop()
	m.counts, m.requests = c.Total(), perSecond(c.Series(), withdrawn.Sub(c.Began()), old, next)
	return m, nil
}

// begin starts the new cluster.
func (m *moved) begin(ctx context.Context, o Options, n *network, way string, old, next *site) error {
	began := time.Now()
	if way == Together {
		// The new load balancer first selects the same backends as the old one. So it
		// knows the old pods' flows when others take their place.
		if err := errors.Join(next.write("web.yaml", service), next.include(old, false)); err != nil {
			return err
		}
	} else if err := next.expose(); err != nil {
		return err
	}
	if err := n.bringUp(next); err != nil {
		return err
	}
	at, err := n.routed(ctx, old, next)
	m.advertised = at.Sub(began)
	if err != nil || way == Apart {
		return err
	}
	return errors.Join(bench.Pause(ctx, o.Settle), next.include(next, false), next.include(old, true))
}

// end drains the old load balancer and ends its cluster. It returns when the router sent
// it no more packets.
func (m *moved) end(ctx context.Context, o Options, n *network, way string, old, next *site) (withdrawn time.Time, err error) {
	began := time.Now()
	balancer := n.processes[old.balancer()]
	if err := balancer.Signal(syscall.SIGTERM); err != nil {
		return withdrawn, err
	}
	if withdrawn, err = n.routed(ctx, next); err != nil {
		return withdrawn, err
	}
	m.left = withdrawn.Sub(began)
	<-balancer.Done()
	m.drained = time.Since(began)
	return withdrawn, errors.Join(bench.Pause(ctx, o.Settle), n.stop(ctx, old, 3*time.Second))
}
