// Package endpoints measures how endpoints reach the nodes of a real Kubernetes: requests
// and time with and without batching in kube-controller-manager, bytes and requests of
// Endpoints and of EndpointSlices, and what one central load balancer saves compared with
// a proxy on each node ("Scale Kubernetes to support 50,000 services", its slides on the
// control plane).
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Programs are those of Kubernetes that the experiments need.
var Programs = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

// Options configures what is measured.
type Options struct {
	// Services contains the numbers of Services of the batching experiment, each with Pods
	// pods, of which Rate become ready per second.
	Services   []int
	Pods, Rate int
	// Period is the batch period, compared with none.
	Period time.Duration
	// Limits contains the request rates of the controllers; 0 is no limit.
	Limits []int
	// Sizes contains the numbers of endpoints of the partition experiment, Changes how
	// often one of them changes.
	Sizes   []int
	Changes int
	// Nodes contains the numbers of clients of the API server, Known the Services that each
	// of them reads, Requests how often latency is measured.
	Nodes           []int
	Known, Requests int
	// Rounds is how often pods become ready in each case.
	Rounds int
	// Binary is the fairlead that serves as the central load balancer.
	Binary   string
	Progress io.Writer
}

// DefaultOptions returns the numbers of the slides. They do not contain the pods per
// second and the request rate: after batching, 1,000, 1,500 and 2,000 pods took 3.5, 5.3
// and 7.8 s, and before, the controller sent 65, 58 and 48 requests per second.
func DefaultOptions() Options {
	return Options{
		Services: []int{100, 150, 200}, Pods: 10, Rate: 280, Period: 500 * time.Millisecond, Limits: []int{0, 50}, Rounds: 1,
		Sizes: []int{100, 1000}, Changes: 10,
		Nodes: []int{1, 50}, Known: 1000, Requests: 2000,
	}
}

// experiment is a running measurement.
type experiment struct {
	Options
	*bench.Report
	names   []string // of what was measured, in order
	units   map[string]string
	samples map[string][]float64
}

// add adds samples of a quantity.
func (e *experiment) add(name, unit string, values ...float64) {
	if e.samples[name] == nil {
		e.names = append(e.names, name)
	}
	e.units[name] = unit
	e.samples[name] = append(e.samples[name], values...)
}

func (e *experiment) logf(format string, args ...any) { fmt.Fprintf(e.Progress, format+"\n", args...) }

// Batching measures what kube-controller-manager's batch period saves.
func Batching(ctx context.Context, o Options) (*bench.Report, error) {
	return o.measure(ctx, "batching", (*experiment).batching)
}

// Partition compares Endpoints with EndpointSlices.
func Partition(ctx context.Context, o Options) (*bench.Report, error) {
	return o.measure(ctx, "partition", (*experiment).partition)
}

// Central compares one load balancer with a proxy on each node.
func Central(ctx context.Context, o Options) (*bench.Report, error) {
	return o.measure(ctx, "central", (*experiment).central)
}

// measure runs an experiment with an API server of its own. It needs the sandbox.
func (o Options) measure(ctx context.Context, name string, run func(*experiment, context.Context, *controlPlane) error) (report *bench.Report, err error) {
	dir, err := os.MkdirTemp(sandbox.WorkDir, name)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	e := &experiment{Options: o, Report: bench.New(name), units: map[string]string{}, samples: map[string][]float64{}}
	c, err := newControlPlane(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := run(e, ctx, c); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, name := range e.names {
		r := bench.Plain(name, e.units[name], e.samples[name]...)
		r.Raw = nil
		e.Rows = append(e.Rows, r)
	}
	return e.Report, nil
}
