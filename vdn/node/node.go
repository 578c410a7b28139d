// Package node is the daemon on each node of a domain. It enforces the controller's
// newest plan for its node, restores it when the kernel state changes or the controller
// is unreachable, and reports the result to the controller every second.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/internal/wake"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Controller is the source of plans; client.Client implements it.
type Controller interface {
	// Plan waits for a plan of another revision; fresh is true if there is one.
	Plan(ctx context.Context, node string, after uint64, wait time.Duration) (p vdn.Plan, fresh bool, err error)
	Report(ctx context.Context, r vdn.NodeReport) error
	// Attach and Up report an attachment that the node continued by itself.
	Attach(ctx context.Context, r vdn.AttachmentRequest) (vdn.Lease, error)
	Up(ctx context.Context, id string, u vdn.UpReport) (vdn.Attachment, error)
}

// Config configures a node.
type Config struct {
	vdn.Node
	Controller Controller
	Enforcer   enforce.Enforcer
	// Kept is the file that caches the last plan, for a start while the controller is
	// unreachable; empty for none.
	Kept string
	Log  *slog.Logger // nil means slog.Default()
}

// Intervals of the daemon.
const (
	pollWait    = 30 * time.Second // for changes
	pollRetry   = time.Second      // while the controller is unreachable
	reportEvery = time.Second
	// relook is the maximum time until enforcement that was removed externally is restored
	// if no event reports it.
	relook = 5 * time.Second
)

// Daemon is a node's daemon. Its enforcement stays in force after it exits.
type Daemon struct {
	cfg    Config
	log    *slog.Logger
	rounds heartbeat.Rounds

	mu      sync.Mutex
	plan    *vdn.Plan     // the newest; nil before the first
	applied vdn.Plan      // the last applied plan, possibly in part
	err     error         // what of it failed
	changed chan struct{} // closed when applied changes
	contact contact
	adopted map[string]Adoption // by ID

	kept   uint64        // the revision on disk; used only by keep
	unkept uint64        // the revision that was reported as not cached
	kick   chan struct{} // signals that there is something to apply
}

// New creates a daemon; nothing happens before Run.
func New(cfg Config) *Daemon {
	d := &Daemon{cfg: cfg, log: cfg.Log, changed: make(chan struct{}), adopted: map[string]Adoption{}, kick: make(chan struct{}, 1)}
	if d.log == nil {
		d.log = slog.Default()
	}
	if err := d.restoreAdopted(); err != nil {
		d.log.Warn("vdn node: failed to read the leases that were continued without a controller", "error", err)
	}
	return d
}

// Run runs the daemon until ctx ends, in the calling thread's network namespace, which must
// be that of the Enforcer.
func (d *Daemon) Run(ctx context.Context) error {
	if d.cfg.Gateway {
		if err := sysctl.SetAll(forwarding); err != nil {
			return err
		}
	}
	routes, err := newRoutes()
	if err != nil {
		return err
	}
	defer routes.close()
	for _, lost := range d.cfg.Enforcer.Degraded() {
		d.log.Warn("vdn node: degraded: the kernel rejects an optional feature", "lost", lost)
	}
	if p, err := d.restore(); err != nil {
		d.log.Warn("vdn node: invalid cached plan", "error", err)
	} else if p != nil {
		d.contact.cached = true
		d.take(*p)
	}
	stop, err := d.watchLinks(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { d.poll(ctx) })
	all.Go(func() { d.report(ctx) })
	d.keep(ctx, routes)
	all.Wait()
	return nil
}

var forwarding = []sysctl.Setting{
	{Path: "ipv4/ip_forward", Value: "1", Why: "a gateway forwards between networks and elsewhere"},
	{Path: "ipv6/conf/all/forwarding", Value: "1", Why: "a gateway forwards between networks and elsewhere"},
}

// take schedules a new plan to be applied.
func (d *Daemon) take(p vdn.Plan) {
	d.mu.Lock()
	d.plan = &p
	d.mu.Unlock()
	d.again()
}

// again schedules the plan to be applied again.
func (d *Daemon) again() {
	wake.Up(d.kick)
}

// poll requests plans.
func (d *Daemon) poll(ctx context.Context) {
	// The controller has no plan for a node that it does not know.
	_ = d.cfg.Controller.Report(ctx, d.Report(ctx)) // errors reappear below
	var revision uint64
	var wait time.Duration // 0 at first and after a failure, so that a controller's return is noticed immediately
	for ctx.Err() == nil {
		p, fresh, err := d.cfg.Controller.Plan(ctx, d.cfg.Name, revision, wait)
		if ctx.Err() != nil {
			return
		}
		wait = pollWait
		switch changed := d.noteContact(err); {
		case err != nil:
			if changed {
				d.log.Warn("vdn node: no controller reachable, enforcement continues", "error", err)
			}
			wait = 0
			sleep.For(ctx, pollRetry)
		case changed:
			d.log.Info("vdn node: a controller answers")
			fallthrough
		default:
			if fresh {
				revision = p.Revision
				d.take(p)
			}
			d.handOver(ctx)
		}
	}
}

// keep applies new plans, and reapplies the current one periodically.
func (d *Daemon) keep(ctx context.Context, routes *routes) {
	tick := time.NewTicker(relook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.kick:
		case <-tick.C:
		}
		if whole, base := d.effective(); base != nil {
			end := d.rounds.Begin("enforcement")
			d.apply(ctx, *whole, routes)
			end()
			d.saveOnce(*base)
		}
	}
}

func (d *Daemon) apply(ctx context.Context, p vdn.Plan, routes *routes) {
	err := errors.Join(d.cfg.Enforcer.Apply(ctx, p), routes.apply(p.Routes))
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	first := d.applied.Revision != p.Revision
	logged := fmt.Sprint(d.err) == fmt.Sprint(err)
	d.applied, d.err = p, err
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	if err != nil && !logged {
		d.log.Warn("vdn node: the plan is not completely enforced", "revision", p.Revision, "error", err)
	}
	if first {
		d.log.Info("vdn node: applied", "revision", p.Revision, "networks", len(p.Slices), "attachments", len(p.Local))
	}
}

// saveOnce caches a plan that is not cached yet. It retries a failure with every cycle and
// logs it once.
func (d *Daemon) saveOnce(p vdn.Plan) {
	if d.kept == p.Revision {
		return
	}
	err := d.save(p)
	if err == nil {
		d.kept = p.Revision
	} else if d.unkept != p.Revision {
		d.unkept = p.Revision
		d.log.Warn("vdn node: failed to store the plan; a start without the controller would use the previous one", "error", err)
	}
}

// report sends a report to the controller every second.
func (d *Daemon) report(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		// poll logs that the controller is unreachable.
		if err := d.cfg.Controller.Report(ctx, d.Report(ctx)); err != nil {
			d.log.Debug("vdn node: report", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Report returns the report for the controller.
func (d *Daemon) Report(ctx context.Context) vdn.NodeReport {
	counters, countErr := d.cfg.Enforcer.Counters(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	r := vdn.NodeReport{Node: d.cfg.Node, Applied: d.applied.Revision, Degraded: d.cfg.Enforcer.Degraded(), Counters: counters}
	if err := errors.Join(d.err, countErr); err != nil {
		r.Error = err.Error()
	}
	return r
}
