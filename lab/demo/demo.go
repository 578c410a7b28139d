// Package demo runs the whole system on one machine, with real traffic: the
// drawing of lab/paper, real agents, reflector and router in it, and changes
// made under load, each measured. It is what fairlead-lab demo does; the lab
// itself, and the load, live in lab and lab/load.
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

// Options say what is run.
type Options struct {
	// Binary is the fairlead to run in the lab.
	Binary  string
	Version string
	// Balancers and Servers are those of the first service at the start.
	Balancers, Servers int
	Method, Scheduler  string
	// Duration is how long the load runs, with all events in it.
	Duration time.Duration
	Router   string
	// Report is the file for the HTML report.
	Report string
	// Logs is the folder for the logs of all processes; empty for one that
	// vanishes with the sandbox.
	Logs string
	// Keep waits before everything is taken away, until ctx ends.
	Keep bool
	// Out is for people; on a terminal of Width columns one line there is
	// written over again and again, with 0 lines just follow each other.
	Out   io.Writer
	Width int
}

// secondBalancers and secondServers are those of the other service.
const secondBalancers, secondServers = 2, 2

// Validate says which option is wrong.
func (o Options) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Balancers < 1 || o.Balancers > 16 {
		refuse("--balancers: %d is not between 1 and 16", o.Balancers)
	}
	if o.Servers < 2 || o.Servers > 64 {
		refuse("--servers: %d is not between 2 and 64: one drains and one is killed", o.Servers)
	}
	if !slices.Contains(service.Methods, service.Method(o.Method)) {
		refuse("--method: %q is none of %v", o.Method, service.Methods)
	}
	if !slices.Contains(service.Schedulers, service.Scheduler(o.Scheduler)) {
		refuse("--scheduler: %q is none of %v", o.Scheduler, service.Schedulers)
	}
	if !slices.Contains(cluster.Routers, o.Router) {
		refuse("--router: %q is none of %v", o.Router, cluster.Routers)
	}
	if o.Duration < 15*time.Second || o.Duration > time.Hour {
		refuse("--duration: %s is not between 15s and 1h", o.Duration)
	}
	return errors.Join(errs...)
}

// stateless says whether the balancers remember no flows.
func (o Options) stateless() bool {
	return o.Method != string(service.FullNAT) && o.Scheduler == string(service.Maglev)
}

// ErrInterrupted is Run's answer where ctx ended it.
var ErrInterrupted = errors.New("interrupted; everything was taken away again")

// Run runs the demo. It needs the sandbox. What it could measure is in the
// Result also where it ends with an error; ctx ends it early, with everything
// taken away.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	// Temporary files of whatever we start go with the sandbox too.
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return nil, err
	}
	r := &runner{Options: o, result: &Result{
		Version: o.Version, Kernel: version.Release(), Report: o.Report,
		Services: []Service{}, Events: []Event{}, Leftovers: []string{}, Reasons: []string{},
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
