package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/topology"
	"github.com/fairlead/fairlead/router"
)

// runner is one run.
type runner struct {
	Options
	result  *Result
	cluster *system
	load    *load.Client
	began   time.Time // start of the load
	watch   *watch
	drawing string
	// complete means that everything was done and measured.
	complete bool
}

func (r *runner) run(ctx context.Context) (err error) {
	r.logf("Building the network ...")
	if r.cluster, err = newSystem(ctx, r.Options); err != nil {
		return err
	}
	r.drawing = r.cluster.Lab.Topology().String()
	r.logf("\n%s", r.drawing)
	if err := r.bringUp(ctx); err != nil {
		return err
	}
	r.drawing = r.cluster.Lab.Topology().String()
	if err := r.underLoad(ctx); err != nil {
		return err
	}
	r.describe()
	r.complete = true
	if r.Keep {
		r.keep(ctx)
	}
	return nil
}

// bringUp starts the load balancers as in Fig. 12: one, all of the first service, then
// those of the second.
func (r *runner) bringUp(ctx context.Context) error {
	for i := range r.Balancers {
		if _, err := r.cluster.Route(ctx, mainService); err != nil {
			return err
		}
		if i == 0 {
			if err := r.showTable("(a) one balancer"); err != nil {
				return err
			}
		}
	}
	if err := r.showTable(fmt.Sprintf("(b) %d balancers", r.Balancers)); err != nil {
		return err
	}
	for range secondBalancers {
		if _, err := r.cluster.Route(ctx, mainService+1); err != nil {
			return err
		}
	}
	return r.showTable(fmt.Sprintf("(c) a second service with %d balancers", secondBalancers))
}

// showTable prints the router's kernel table.
func (r *runner) showTable(title string) error {
	routes, err := r.cluster.Table()
	if err != nil {
		return err
	}
	text := router.Format(routes)
	r.result.Tables = append(r.result.Tables, title+"\n"+text)
	r.logf("The router's routes, %s:\n%s", title, indent(text))
	return nil
}

// underLoad starts the load and makes the changes.
func (r *runner) underLoad(ctx context.Context) (err error) {
	if r.load, err = r.startLoad(ctx); err != nil {
		return err
	}
	r.began = r.load.Began()
	r.watch = r.startWatch(ctx)
	changes := r.cluster.changes()
	// Three shares of the time are for the load without changes.
	const quiet = 3
	share := r.Duration / time.Duration(len(changes)+quiet)
	err = r.steady(ctx, share*quiet)
	for i, c := range changes {
		if err == nil {
			err = r.change(ctx, c, r.began.Add(share*time.Duration(i+quiet+1)))
		}
	}
	r.watch.stop()
	r.load.Stop()
	totals := r.load.Total()
	r.result.Load = Load{Requests: totals.Requests, Failed: totals.Failed, PerServer: totals.PerServer, PerBalancer: r.watch.connections()}
	r.result.samples = r.watch.samples(r.load)
	return err
}

// startLoad starts the clients: most requests have their own connection, some use
// connections that stay open all the time. Each of these is used once a second, so that
// it does not take longer to notice which of them a change has broken.
func (r *runner) startLoad(ctx context.Context) (*load.Client, error) {
	return load.Start(ctx, load.Config{
		Dial: r.cluster.Lab.Host(topology.Client).Dial, Target: r.cluster.Services[mainService].VIP, Locals: r.cluster.ClientAddrs,
		KeepAlive: 200, KeepAliveRate: 200, OneShotRate: 600,
	})
}

// steady lets the load run without changes, and records the shares.
func (r *runner) steady(ctx context.Context, long time.Duration) error {
	if err := sleep(ctx, long/8); err != nil { // until connections are open
		return err
	}
	mark := r.load.Mark()
	if err := sleep(ctx, long-long/8); err != nil {
		return err
	}
	window := r.load.Since(mark)
	r.result.Shares, r.result.sampled = map[string]float64{}, window.Requests
	for name, n := range window.PerServer {
		r.result.Shares[name] = float64(n) / float64(window.Requests)
	}
	return r.cluster.FailedProcess()
}

// change makes one change and lets the load run until the given time.
func (r *runner) change(ctx context.Context, c change, until time.Time) error {
	pod, err := c.prepare(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	r.watch.now(c.name)
	if c.expect != nil {
		c.expect(pod)
	}
	mark, start := r.load.Mark(), time.Now()
	e := Event{Name: c.name, Subject: pod.Name, StartedMs: ms(start.Sub(r.began)), ConvergedMs: -1}
	done := make(chan error, 1)
	go func() { done <- c.do(pod) }()
	if at, ok := cluster.Await(ctx, c.pace, cluster.StartLimit, func() bool { return c.converged(ctx, pod) }); ok {
		e.ConvergedMs = ms(at.Sub(start))
	}
	if err := <-done; err != nil {
		return fmt.Errorf("%s %s: %w", c.name, pod.Name, err)
	}
	if c.after != nil {
		err = c.after(pod)
	}
	err = errors.Join(err, sleep(ctx, max(time.Until(until), time.Second)), r.load.Settle(ctx))
	lost := r.load.Since(mark)
	e.Requests, e.Failed, e.BrokenConnections = lost.Requests, lost.Failed, lost.BrokenConnections
	r.result.Events = append(r.result.Events, e)
	r.watch.print("%-15s %-9s converged in %7.1f ms; %5d requests, %d failed, %d connections broken%s",
		e.Name, e.Subject, e.ConvergedMs, e.Requests, e.Failed, e.BrokenConnections, reasons(lost.Reasons))
	return errors.Join(err, r.cluster.FailedProcess())
}

// reasons describes the failures, "" for none.
func reasons(count map[string]uint64) string {
	var texts []string
	for _, why := range sortedKeys(count) {
		texts = append(texts, fmt.Sprintf("%d %s", count[why], why))
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// describe fills in the services at the end.
func (r *runner) describe() {
	for i, s := range r.cluster.Services {
		d := Service{
			Name: s.Name, VIP: s.VIP.Addr().String(), Port: s.VIP.Port(), Method: r.Method, Scheduler: r.Scheduler,
			NextHops: r.cluster.NextHops(i),
		}
		for _, pod := range r.cluster.Balancers(i) {
			d.Balancers = append(d.Balancers, pod.Name)
		}
		r.result.Services = append(r.result.Services, d)
	}
}

// keep waits until ctx ends, and prints how to inspect the system in the meantime.
func (r *runner) keep(ctx context.Context) {
	pid := sandbox.OuterPID()
	r.logf("\nEverything stays up until you press Ctrl-C. To inspect it, in another terminal:\n"+
		"  nsenter -t %s -m -p ip netns exec %s ip route\n"+
		"  nsenter -t %s -m -p %s services --socket %s", pid, topology.Router, pid, r.Binary, cluster.Socket(r.cluster.Balancers(mainService)[0].Name))
	<-ctx.Done()
}

// report writes the report and prints the result.
func (r *runner) report() error {
	if r.Report == "" {
		return nil
	}
	return r.result.WriteReport(r.Report, r.drawing)
}

func (r *runner) logf(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sleep waits, or returns ctx's error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
