package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/source/kube"
)

// drainPath starts a drain, or ends it with ?undo=true.
const drainPath = "/v1/drain"

func drainFlags(f *pflag.FlagSet, c *config.Agent) {
	f.DurationVar(&c.DrainNotice, "graceful-shutdown-period", c.DrainNotice, "time that routes are advertised with the lowest preference before they are withdrawn (RFC 8326)")
	f.StringSliceVar(&c.DrainCommunities, "drain-community", c.DrainCommunities, "`COMMUNITY` that asks routers to avoid a route; repeatable")
	f.Uint32Var(&c.DrainMED, "drain-med", 0, "minimum `MED` of routes while draining; 0 keeps the route's")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "maximum time to wait for tracked flows while other --balancers exist, and at exit for confirmed withdrawals")
	f.BoolVar(&c.DrainOnCordon, "drain-on-cordon", c.DrainOnCordon, "drain while the Node is cordoned, unless this is the last active one of --balancers")
	f.StringSliceVar(&c.DrainTaints, "drain-taint", c.DrainTaints, "drain while the Node has a taint with this `KEY`, with the same exception; repeatable")
}

func newDrainCommand() *cobra.Command {
	var d drainCommand
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Drain this load balancer node",
		Long: `Drain the load balancer on this node: its routes ask routers to avoid it, then they
are withdrawn; BGP sessions stay up, and packets that still arrive are forwarded.
It is drained when no flow depends on it, or after the agent's --drain-timeout.
fairlead status shows the stage.

It stays drained until fairlead undrain or a restart of the agent, even if no other
load balancer is left. Other load balancers are not informed: if flows are tracked,
taint the Node with fairlead.io/drain instead.`,
		Example: `  fairlead drain
  fairlead drain --wait 1m`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd, true) },
	}
	d.flags(cmd, "wait up to this long until it is drained; 0 does not wait")
	return cmd
}

func newUndrainCommand() *cobra.Command {
	var d drainCommand
	cmd := &cobra.Command{
		Use:   "undrain",
		Short: "End a drain of this load balancer node",
		Long: `End a drain that fairlead drain started: the load balancer advertises its routes
again. A drain by a cordoned or tainted Node ends with its cause.`,
		Example: `  fairlead undrain
  fairlead undrain --wait 1m`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd, false) },
	}
	d.flags(cmd, "wait up to this long until it advertises again; 0 does not wait")
	return cmd
}

// drainCommand starts or ends a drain.
type drainCommand struct {
	apiClient
	wait time.Duration
}

func (d *drainCommand) flags(cmd *cobra.Command, wait string) {
	socketFlag(cmd.Flags(), &d.socket)
	cmd.Flags().DurationVar(&d.wait, "wait", 0, wait)
}

func (d *drainCommand) run(cmd *cobra.Command, drain bool) error {
	if d.wait < 0 {
		return config.Invalid(fmt.Errorf("--wait: %s is negative", d.wait))
	}
	body, err := d.do(cmd.Context(), http.MethodPost, drainPath, url.Values{"undo": {fmt.Sprint(!drain)}}, nil)
	if err != nil {
		return err
	}
	if err := body.Close(); err != nil || d.wait == 0 {
		return err
	}
	return d.await(cmd, drain)
}

// await waits until the agent is drained, or until it is not draining by command.
func (d *drainCommand) await(cmd *cobra.Command, drain bool) error {
	const interval = 100 * time.Millisecond
	for end := time.Now().Add(d.wait); ; time.Sleep(interval) {
		s, err := d.fetch(cmd.Context())
		switch {
		case err != nil:
			return err
		case !drain && s.Drain == nil, drain && s.Drain != nil && s.Drain.Stage == status.Drained:
			return nil
		case cmd.Context().Err() != nil:
			return cmd.Context().Err()
		case time.Now().After(end):
			return fmt.Errorf("timed out after %s: %s", d.wait, s.DrainWords())
		}
	}
}

// answerDrain orders a drain or its end; the status shows the result.
func (a *agent) answerDrain(s *stream, r *http.Request) error {
	if !a.config.Balancer {
		return fmt.Errorf("this agent does not have the role balancer: nothing to drain")
	}
	undo := r.URL.Query().Get("undo") == "true"
	a.loop.OrderDrain(!undo)
	return json.NewEncoder(s).Encode(map[string]bool{"drain": !undo})
}

// reportDrains reports a loop's drains as Events, in a cluster.
func (a *agent) reportDrains(loop *reconciler.Config) {
	if a.cluster != nil {
		loop.OnDrain = func(d reconciler.Drain) { a.cluster.RecordEvent(drainEvent(d)) }
	}
}

// drainEvent returns the Event for a change of stage.
func drainEvent(d reconciler.Drain) kube.Event {
	why := strings.Join(d.Why, "; ")
	e := kube.Event{Action: "Drain"}
	switch d.Stage {
	case plan.Deferred:
		e.Reason, e.Note, e.Warn = "DrainDeferred", "this is the last active load balancer: "+why, true
	case plan.GracefulShutdown:
		e.Reason, e.Note = "DrainStarted", "routes are advertised with the lowest preference before they are withdrawn: "+why
	case plan.Withdrawn:
		e.Reason, e.Note = "RoutesWithdrawn", fmt.Sprintf("routes are withdrawn, %d flows are left: %s", d.Flows, why)
	case plan.Drained:
		e.Reason, e.Note = "DrainCompleted", fmt.Sprintf("drained after %s: %s", d.Entered.Sub(d.Since).Round(time.Millisecond), why)
		if d.Flows > 0 {
			e.Warn = true
			e.Reason, e.Note = "DrainTimedOut", fmt.Sprintf("%d flows were left at the end of --drain-timeout, %s", d.Flows, e.Note)
		}
	default:
		e.Reason, e.Note = "DrainEnded", "the load balancer is in service again: no reason to drain is left"
	}
	return e
}
