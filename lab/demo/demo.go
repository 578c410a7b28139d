// Package demo runs the whole system on one machine, with real traffic: the network of
// lab/topology with real agents, reflector and router, and changes made under load, each of
// which is measured. It implements fairlead-lab demo; the lab itself and the load are in
// lab and lab/load.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/version"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Options configure a demo.
type Options struct {
	// Binary is the fairlead to run in the lab.
	Binary  string
	Version string
	// Balancers and Servers are the initial numbers of the first service.
	Balancers, Servers int
	Method, Scheduler  string
	// Duration is how long the load runs, including all events.
	Duration time.Duration
	Router   string
	// Report is the file for the HTML report.
	Report string
	// Logs is the folder for the logs of all processes; if empty, one that is removed
	// with the sandbox.
	Logs string
	// Keep waits until ctx ends before everything is removed.
	Keep bool
	// Out is for people. On a terminal with Width columns one line there is overwritten
	// repeatedly; with 0, lines follow each other.
	Out   io.Writer
	Width int
}

// secondBalancers and secondServers are the numbers of the other service.
const secondBalancers, secondServers = 2, 2

// Validate returns an error for each invalid option.
func (o Options) Validate() error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Balancers < 1 || o.Balancers > 16 {
		reject("--balancers: %d is not between 1 and 16", o.Balancers)
	}
	if o.Servers < 2 || o.Servers > 64 {
		reject("--servers: %d is not between 2 and 64: one drains and one is killed", o.Servers)
	}
	if !slices.Contains(service.Methods, service.Method(o.Method)) {
		reject("--method: %q is not one of %v", o.Method, service.Methods)
	}
	if !slices.Contains(service.Schedulers, service.Scheduler(o.Scheduler)) {
		reject("--scheduler: %q is not one of %v", o.Scheduler, service.Schedulers)
	}
	if !slices.Contains(cluster.Routers, o.Router) {
		reject("--router: %q is not one of %v", o.Router, cluster.Routers)
	}
	if o.Duration < 15*time.Second || o.Duration > time.Hour {
		reject("--duration: %s is not between 15s and 1h", o.Duration)
	}
	return errors.Join(errs...)
}

// stateless reports whether the load balancers track no flows.
func (o Options) stateless() bool {
	return o.Method != string(service.FullNAT) && o.Scheduler == string(service.Maglev)
}

// ErrInterrupted is the result of Run if ctx ended it.
var ErrInterrupted = errors.New("interrupted; everything was removed")

// Run runs the demo. It needs the sandbox. The Result contains what could be measured,
// even if Run returns an error; ctx ends it early, with everything removed.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	// Temporary files of everything that is started are removed with the sandbox too.
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return nil, err
	}
	r := &runner{Options: o, result: &Result{
		Version: o.Version, Kernel: version.Release(), Report: o.Report,
		Services: []Service{}, Tables: []string{}, Events: []Event{}, Leftovers: []string{}, Reasons: []string{},
	}}
	err := r.run(ctx)
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Close())
	}
	r.result.Leftovers = append(r.result.Leftovers, sandbox.Leftovers()...)
	r.result.foreign = o.Router != cluster.RouterFairlead
	r.result.judge(o.stateless())
	if ctx.Err() != nil && !r.complete {
		r.result.Passed = false
		return r.result, ErrInterrupted
	}
	if err == nil {
		err = r.report()
	}
	return r.result, err
}
