package main

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/api"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

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
	query.Query
	wait time.Duration
}

func (d *drainCommand) flags(cmd *cobra.Command, wait string) {
	query.SocketFlag(cmd.Flags(), &d.Socket)
	cmd.Flags().DurationVar(&d.wait, "wait", 0, wait)
}

func (d *drainCommand) run(cmd *cobra.Command, drain bool) error {
	if d.wait < 0 {
		return config.Invalid(fmt.Errorf("--wait: %s is negative", d.wait))
	}
	body, err := d.Do(cmd.Context(), http.MethodPost, api.DrainPath, url.Values{"undo": {fmt.Sprint(!drain)}}, nil)
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
		s, err := d.Fetch(cmd.Context())
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
