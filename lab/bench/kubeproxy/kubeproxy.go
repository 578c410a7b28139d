// Package kubeproxy measures the service proxy in a realistic setup: a real API server
// with very many Services, and the agent as a separate process. In the same run and the
// same namespaces it also measures Kubernetes' own kube-proxy (nftables). Results are
// read from the kernel, from outside; the agent is queried only for what the kernel
// cannot show.
//
// Package testbed is the testbed, cluster.go contains the API server, fairlead.go and
// peer.go the two proxies, parts.go and the files it names the measurements, and
// report.go the goals.
package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// The parts of the experiment, in order.
const (
	Start   = "start"
	Add     = "add"
	Change  = "change"
	Churn   = "churn"
	Memory  = "memory"
	Packet  = "first-packet"
	Restart = "restart"
	Rolling = "rolling"
	Big     = "big-services"
)

// Parts contains all parts.
var Parts = []string{Start, Add, Change, Churn, Memory, Packet, Restart, Rolling, Big}

// Options configures what is measured.
type Options struct {
	// Services is the number of Services with which the proxy is measured, each with
	// Endpoints endpoints.
	Services, Endpoints int
	// PeerServices is the number of Services with which kube-proxy and, for comparison,
	// Fairlead are measured in alternation. 0 skips both.
	PeerServices int
	// BigServices is the number of Services with BigEndpoints endpoints each. They are
	// measured in a separate cluster.
	BigServices, BigEndpoints int
	// Starts is how often the proxy is started from scratch, and the number of rounds in
	// which kube-proxy and Fairlead alternate. Changes is the number of changes measured
	// one by one, Connects the number of connections.
	Starts, Changes, Connects int
	// Rate is the number of changes per second in the part Churn, which runs for
	// Duration.
	Rate     int
	Duration time.Duration
	// RollingPods is the number of pods that are replaced, one after the other, behind
	// RollingServices Services.
	RollingPods, RollingServices int
	// Only contains the parts to measure.
	Only []string
	// Binary is the fairlead binary, Logs the folder for the logs of all programs.
	Binary, Logs string
	// Progress receives progress messages.
	Progress io.Writer
}

// DefaultOptions returns the options that the goals apply to.
func DefaultOptions() Options {
	return Options{
		Services: 50_000, Endpoints: 3, PeerServices: 1000, BigServices: 5000, BigEndpoints: 50,
		Starts: 3, Changes: 50, Connects: 2000, Rate: 50, Duration: time.Minute,
		RollingPods: 10, RollingServices: 200, Only: Parts,
	}
}

// mostEndpoints is the maximum number of endpoints, limited by the available addresses.
const mostEndpoints = 1 << 20

// Validate reports which options are invalid.
func (o Options) Validate() error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, part := range o.Only {
		if !slices.Contains(Parts, part) {
			reject("--only: %q is not one of %s", part, strings.Join(Parts, ", "))
		}
	}
	if o.Services < 10 || o.Endpoints < 1 || o.Endpoints > 100 || o.Services*o.Endpoints > mostEndpoints {
		reject("--services, --endpoints: want at least 10 Services of 1 to 100 endpoints, and at most %d endpoints", mostEndpoints)
	}
	if o.PeerServices != 0 && (o.PeerServices < 10 || o.PeerServices > o.Services) {
		reject("--peer-services: %d is not 0, nor from 10 to --services", o.PeerServices)
	}
	if o.BigServices < 1 || o.BigEndpoints < 1 || o.BigServices*o.BigEndpoints > mostEndpoints {
		reject("--big-services, --big-endpoints: want at least 1 of each and at most %d endpoints", mostEndpoints)
	}
	if o.Starts < 1 || o.Changes < 1 || o.Changes > 1000 || o.Connects < 100 || o.Rate < 1 || o.Rate > 1000 {
		reject("--starts, --changes, --connects, --rate: want at least 1; 1 to 1000; at least 100; 1 to 1000")
	}
	if o.Duration < time.Second || o.Duration > 10*time.Minute {
		reject("--duration: %s is not from 1s to 10m", o.Duration)
	}
	if o.RollingPods < 1 || o.RollingPods > 100 || o.RollingServices < 1 || o.RollingServices > o.Services {
		reject("--rolling-pods, --rolling-services: want 1 to 100 pods, and 1 to --services")
	}
	return errors.Join(errs...)
}

func (o Options) wants(part string) bool { return slices.Contains(o.Only, part) }

func (o Options) logf(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

// Run runs the experiment. It needs the sandbox, with its own network, and the Kubernetes
// programs. If it returns an error, the report contains what was measured before.
func Run(ctx context.Context, o Options) (report *bench.Report, err error) {
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return nil, err
	}
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	g, err := testbed.New()
	if err != nil {
		return nil, err
	}
	e := &experiment{Options: o, ground: g}
	err = e.run(ctx)
	err = errors.Join(err, g.Close())
	if left := sandbox.Leftovers(); err == nil && len(left) > 0 {
		err = fmt.Errorf("not cleaned up: %v", left)
	}
	return e.report(), err
}

// experiment is one run with its results.
type experiment struct {
	Options
	ground *testbed.Ground
	// ours contains Fairlead's figures with Services Services, big those with
	// BigServices.
	ours, big figures
	// few contains Fairlead's figures with PeerServices Services, and peer those of
	// kube-proxy, by round.
	few, peer []figures
	notes     []string
}

func (e *experiment) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

func (e *experiment) run(ctx context.Context) error {
	e.ours, e.big = figures{}, figures{}
	stages := []struct {
		name string
		size size
		run  func(context.Context, *cluster) error
		want bool
	}{
		{"few", size{e.PeerServices, e.Endpoints}, e.amongFew, e.PeerServices > 0 && !slices.Equal(e.Only, []string{Big})},
		{"all", size{e.Services, e.Endpoints}, e.amongAll, !slices.Equal(e.Only, []string{Big})},
		{"big", size{e.BigServices, e.BigEndpoints}, e.amongBig, e.wants(Big)},
	}
	for _, s := range stages {
		if !s.want {
			continue
		}
		if err := e.stage(ctx, s.name, s.size, s.run); err != nil {
			return fmt.Errorf("%d Services of %d endpoints: %w", s.size.services, s.size.endpoints, err)
		}
	}
	return nil
}

// stage creates a cluster for a part of the experiment.
func (e *experiment) stage(ctx context.Context, name string, s size, run func(context.Context, *cluster) error) (err error) {
	e.logf("%d Services of %d endpoints: starting etcd and kube-apiserver ...", s.services, s.endpoints)
	began := time.Now()
	c, err := newCluster(ctx, e.Options, name, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	e.logf("ready after %.1f s", time.Since(began).Seconds())
	return run(ctx, c)
}

// amongFew measures Fairlead and kube-proxy in alternation, in as many rounds as there
// are starts. Each round makes its share of all measurements.
func (e *experiment) amongFew(ctx context.Context, c *cluster) error {
	round := *e
	round.notes = nil
	round.Changes, round.Connects = max(1, e.Changes/e.Starts), max(100, e.Connects/e.Starts)
	round.Duration = max(time.Second, e.Duration/time.Duration(e.Starts))
	defer func() { e.notes = append(e.notes, round.notes...) }()
	other, err := newKubeProxy(c)
	if err != nil {
		return err
	}
	ours := newFairlead(e, c)
	for i := range e.Starts {
		e.few, e.peer = append(e.few, figures{}), append(e.peer, figures{})
		turns := []*meter{
			{experiment: &round, cluster: c, subject: ours, into: e.few[i]},
			{experiment: &round, cluster: c, subject: other, into: e.peer[i]},
		}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, m := range turns {
			if err := m.measure(ctx, Start, Add, Change, Churn, Memory, Packet, Restart); err != nil {
				return err
			}
		}
	}
	return nil
}

// amongAll measures Fairlead with all Services.
func (e *experiment) amongAll(ctx context.Context, c *cluster) error {
	m := &meter{experiment: e, cluster: c, subject: newFairlead(e, c), into: e.ours, floor: true}
	return m.measure(ctx, Start, Add, Change, Churn, Memory, Packet, Restart, Rolling)
}

// amongBig measures Fairlead's start with Services of many endpoints.
func (e *experiment) amongBig(ctx context.Context, c *cluster) error {
	m := &meter{experiment: e, cluster: c, subject: newFairlead(e, c), into: e.big, floor: true}
	return errors.Join(m.part(ctx, Start), m.end())
}
