// Package survival measures how many connections a change breaks. Many TCP connections
// with traffic stay open through several load balancers to several backends, while load
// balancers and backends come and go. It uses the network of the papers with real agents.
// It counts exactly how many connections break, for each connection-consistency mode.
package survival

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/topology"
)

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run in the lab.
	Binary                           string
	Connections, Balancers, Servers  int
	Survivals                        []string
	Method, Encapsulation, Scheduler string
	// FullNAT also measures graceful removals with fullnat.
	FullNAT bool
	Events  []string
	// Rounds is how often everything changes within the ten seconds of the storm.
	Rounds int
	// Life is the approximate lifetime of a connection, after which it is closed and
	// opened again; 0 means unlimited. With fullnat it is fullNATLife.
	Life time.Duration
	// Every is the time between two requests of a connection. Timeout is the response
	// time after which a connection counts as broken. Settle is how long the load
	// continues after each event.
	Every, Timeout, Settle time.Duration
	// Logs is the folder for the logs of all processes. If it is empty, the logs
	// disappear with the sandbox.
	Logs string
	// Progress receives progress messages.
	Progress io.Writer
}

// DefaultOptions returns the options behind the published figures.
func DefaultOptions() Options {
	return Options{
		Connections: 10000, Balancers: 4, Servers: 8,
		Survivals: []string{string(service.SecondChance), string(service.FlowTable), string(service.HashOnly)},
		Method:    string(service.DefaultMethod), Scheduler: string(service.DefaultScheduler), FullNAT: true,
		Events: slices.Clone(DefaultEvents), Rounds: 3,
		Every: time.Second, Timeout: 15 * time.Second, Settle: 5 * time.Second,
	}
}

// mostConnections is limited by the number of files that the client's process may open.
const mostConnections = 18000

// Validate reports which options are invalid.
func (o Options) Validate() error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(name string, n, low, high int) {
		if n < low || n > high {
			reject("--%s: %d is not between %d and %d", name, n, low, high)
		}
	}
	within("connections", o.Connections, 1, mostConnections)
	within("balancers", o.Balancers, 2, 16)
	within("servers", o.Servers, 2, 64)
	within("rounds", o.Rounds, 1, 5)
	for _, s := range o.Survivals {
		if !slices.Contains(service.Survivals, service.Survival(s)) {
			reject("--connection-consistency: %q is not one of %v", s, service.Survivals)
		}
	}
	if !slices.Contains(service.Methods, service.Method(o.Method)) {
		reject("--method: %q is not one of %v", o.Method, service.Methods)
	}
	if o.Encapsulation != "" && !slices.Contains(service.Encapsulations, service.Encapsulation(o.Encapsulation)) {
		reject("--encapsulation: %q is not one of %v", o.Encapsulation, service.Encapsulations)
	}
	if !slices.Contains(service.Schedulers, service.Scheduler(o.Scheduler)) {
		reject("--scheduler: %q is not one of %v", o.Scheduler, service.Schedulers)
	}
	for _, e := range o.Events {
		if !slices.Contains(Events, e) {
			reject("--events: %q is not one of %v", e, Events)
		}
	}
	if len(o.Survivals) == 0 && !o.FullNAT {
		reject("--connection-consistency: name one of %v, or leave --fullnat on", service.Survivals)
	}
	if o.Every < 10*time.Millisecond || o.Timeout < time.Second || o.Settle < 0 || o.Timeout > 2*time.Minute || o.Settle > time.Minute || o.Life < 0 {
		reject("--every, --timeout, --settle, --life: want at least 10ms; 1s to 2m; 0s to 1m; at least 0s")
	}
	return errors.Join(errs...)
}

// variant is one run of the experiment.
type variant struct {
	name                                       string
	method, encapsulation, scheduler, survival string
	events                                     []string
	// goal requires that no event breaks a connection.
	goal bool
	// life is the approximate lifetime of a connection; 0 means unlimited.
	life time.Duration
	// drain is how long a load balancer that is removed continues to forward.
	drain time.Duration
}

// fullNATLife is the lifetime of a connection with fullnat, where a load balancer that is
// ending waits for its existing connections.
const fullNATLife = 15 * time.Second

// variants returns the runs that the options request.
func (o Options) variants() (all []variant) {
	for _, s := range o.Survivals {
		v := variant{
			name: s, method: o.Method, encapsulation: o.Encapsulation, scheduler: o.Scheduler, survival: s,
			events: o.Events, goal: s == string(service.SecondChance), life: o.Life,
		}
		if s == string(service.FlowTable) {
			v.drain = removalLimit
		}
		all = append(all, v)
	}
	if o.FullNAT {
		// A load balancer that tracks its connections can only leave after they have
		// ended, so connections have a limited lifetime here.
		all = append(all, variant{
			name: string(service.FullNAT), method: string(service.FullNAT), scheduler: string(service.Maglev),
			survival: string(service.FlowTable), events: []string{RemoveBalancer}, goal: true,
			life: fullNATLife, drain: removalLimit,
		})
	}
	return all
}

// Run runs the experiment. It must run in the sandbox. If it returns an error, the
// results contain the completed runs.
func Run(ctx context.Context, o Options) ([]*Result, error) {
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return nil, err
	}
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	var results []*Result
	for _, v := range o.variants() {
		r, err := o.runOne(ctx, v)
		if err != nil {
			return results, fmt.Errorf("%s: %w", v.name, err)
		}
		results = append(results, r)
	}
	if left := sandbox.Leftovers(); len(left) > 0 {
		return results, fmt.Errorf("not cleaned up: %v", left)
	}
	return results, nil
}

// spareNodes is the number of nodes for load balancers that join while others are still
// leaving.
const spareNodes = 10

func (o Options) runOne(ctx context.Context, v variant) (r *Result, err error) {
	logs := filepath.Join(o.Logs, v.name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	o.logf("%s: building the network, %d balancers, %d servers ...", v.name, o.Balancers, o.Servers)
	c, err := cluster.New(ctx, cluster.Options{
		Binary: o.Binary, Router: cluster.RouterFairlead, Logs: logs,
		Paper: topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: o.Balancers + spareNodes, ClientAddrs: 64},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s := newSystem(c, o, v)
	if err := s.bringUp(ctx); err != nil {
		return nil, err
	}
	return s.measure(ctx)
}

func (o Options) logf(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

// measure opens the connections, triggers the events and counts.
func (s *system) measure(ctx context.Context) (*Result, error) {
	load, end := context.WithCancel(ctx)
	t := &traffic{
		dial: s.Lab.Host(topology.Client).Dial, target: s.Services[0].VIP, locals: s.ClientAddrs,
		every: s.opts.Every, timeout: s.opts.Timeout, life: s.variant.life,
	}
	defer t.wait()
	defer end()
	began := time.Now()
	err := t.start(load, s.opts.Connections, func(open int64) { s.logf("%d connections open", open) })
	if err != nil {
		return nil, err
	}
	s.logf("%d connections open after %.1f s", s.opts.Connections, time.Since(began).Seconds())
	r := &Result{variant: s.variant, connections: s.opts.Connections, traffic: t, killed: map[uint64]string{}}
	if err := bench.Pause(ctx, s.opts.Settle+2*s.opts.Every); err != nil {
		return nil, err
	}
	for _, name := range s.variant.events {
		if err := s.event(ctx, r, name); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	// Connections that hang are only detected by their timeout.
	s.logf("waiting for stalled connections ...")
	if err := bench.Pause(ctx, s.opts.Timeout+2*s.opts.Every); err != nil {
		return r, err
	}
	r.finish()
	s.logf("%s", r.verdict())
	return r, errors.Join(s.removals.wait(ctx), s.FailedProcess())
}

// event triggers one event, waits until it has settled, and reports how many connections
// it has broken so far.
func (s *system) event(ctx context.Context, r *Result, name string) error {
	before := len(r.traffic.broken())
	e := Event{Name: name, At: time.Since(r.traffic.began)}
	r.Events = append(r.Events, e)
	subject, err := s.do(ctx, name, r)
	took := time.Since(r.traffic.began) - e.At
	r.Events[len(r.Events)-1].Subject = subject
	if err != nil {
		return err
	}
	if err := bench.Pause(ctx, s.opts.Settle); err != nil {
		return err
	}
	s.logf("%-15s %-40s took %5.2f s; %d connections broken so far", name, subject, took.Seconds(), len(r.traffic.broken())-before)
	return s.FailedProcess()
}

// logf reports progress of this run.
func (s *system) logf(format string, args ...any) {
	s.opts.logf("%s: "+format, append([]any{s.variant.name}, args...)...)
}
