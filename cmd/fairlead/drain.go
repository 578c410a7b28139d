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

// drainPath is the endpoint that starts or stops a drain.
const drainPath = "/v1/drain"

func drainFlags(f *pflag.FlagSet, c *config.Agent) {
	f.DurationVar(&c.DrainNotice, "graceful-shutdown-period", c.DrainNotice, "for how long routes ask routers to avoid this balancer before it withdraws them")
	f.StringSliceVar(&c.DrainCommunities, "drain-community", c.DrainCommunities, "the `communities` by which they ask")
	f.Uint32Var(&c.DrainMED, "drain-med", 0, "the least `MED` of routes that ask; 0: that of the route")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long then to wait for flows that are remembered, where there are other --balancers, and at the end of the agent for confirmations that the routes are gone")
	f.BoolVar(&c.DrainOnCordon, "drain-on-cordon", c.DrainOnCordon, "drain while the Node is cordoned, unless no other of the --balancers would be left")
	f.StringSliceVar(&c.DrainTaints, "drain-taint", c.DrainTaints, "drain while the Node has a taint of one of these `key`s, likewise")
}

func newDrainCommand() *cobra.Command {
	var a asker
	var undo bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Let the balancer here serve what it has, and take nothing new",
		Long: `Drain lets the agent here leave as if it were told to end, but stay: its routes ask
routers to avoid it, then they are withdrawn, while the sessions with them stay and
what still comes is served. It is drained when no flow is left that needs it, or
after --drain-timeout of the agent; fairlead status says how far it is.

It stays so until --undo, or until the agent is started anew. It does so even if no
other balancer is left. In a cluster the other balancers are not told of it: where
flows are remembered, taint the Node fairlead.io/drain instead.`,
		Example: `  fairlead drain
  fairlead drain --wait 1m
  fairlead drain --undo`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return config.Invalid(fmt.Errorf("--wait: %s is less than 0", wait))
			}
			body, err := a.ask(cmd.Context(), http.MethodPost, drainPath, url.Values{"undo": {fmt.Sprint(undo)}}, nil)
			if err != nil {
				return err
			}
			if err := body.Close(); err != nil || wait == 0 {
				return err
			}
			return a.awaitDrain(cmd, undo, wait)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.socket, "socket", "", "`file` to ask on (default: the one in "+status.SocketDir+")")
	f.BoolVar(&undo, "undo", false, "serve again")
	f.DurationVar(&wait, "wait", 0, "how long to wait until it is drained, or serves; 0: not at all")
	return cmd
}

// awaitDrain waits until the agent is drained or, with undo, until the drain command no
// longer applies.
func (a *asker) awaitDrain(cmd *cobra.Command, undo bool, limit time.Duration) error {
	const pace = 100 * time.Millisecond
	for end := time.Now().Add(limit); ; time.Sleep(pace) {
		s, err := a.fetch(cmd.Context())
		switch {
		case err != nil:
			return err
		case undo && s.Drain == nil, !undo && s.Drain != nil && s.Drain.Stage == status.Drained:
			return nil
		case cmd.Context().Err() != nil:
			return cmd.Context().Err()
		case time.Now().After(end):
			return fmt.Errorf("after %s it is %s", limit, s.DrainWords())
		}
	}
}

// answerDrain passes the request to the loop; the status shows the result.
func (a *agent) answerDrain(s *stream, r *http.Request) error {
	if !a.config.Balancer {
		return fmt.Errorf("this agent is no balancer: there is nothing to drain")
	}
	undo := r.URL.Query().Get("undo") == "true"
	a.loop.OrderDrain(!undo)
	return json.NewEncoder(s).Encode(map[string]bool{"drain": !undo})
}

// tellDrains reports a loop's drains as Events, in a cluster.
func (a *agent) tellDrains(loop *reconciler.Config) {
	if a.cluster != nil {
		loop.OnDrain = func(d reconciler.Drain) { a.cluster.Tell(drainEvent(d)) }
	}
}

// drainEvent returns the Event for a change of stage.
func drainEvent(d reconciler.Drain) kube.Event {
	why := strings.Join(d.Why, "; ")
	e := kube.Event{Action: "Drain"}
	switch d.Stage {
	case plan.Kept:
		e.Reason, e.Note, e.Warn = "BalancerKept", "the balancer does not drain, as no other would be left: "+why, true
	case plan.Asking:
		e.Reason, e.Note = "BalancerDraining", "its routes ask routers to avoid the balancer, and are withdrawn then: "+why
	case plan.Withdrawn:
		e.Reason, e.Note = "BalancerWithdrawn", fmt.Sprintf("the balancer's routes are withdrawn, %d flows are left: %s", d.Flows, why)
	case plan.Drained:
		e.Reason, e.Note = "BalancerDrained", fmt.Sprintf("after %s: %s", d.Entered.Sub(d.Since).Round(time.Millisecond), why)
		if d.Flows > 0 {
			e.Warn = true
			e.Reason, e.Note = "BalancerDrainTimeout", fmt.Sprintf("%d flows are left that needed the balancer (--drain-timeout), %s", d.Flows, e.Note)
		}
	default:
		e.Reason, e.Note = "BalancerServing", "the balancer serves again: no reason to drain is left"
	}
	return e
}
