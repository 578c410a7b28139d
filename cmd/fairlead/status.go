package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newStatusCommand() *cobra.Command {
	var q query
	var ready bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the agent, route reflector or router",
		Long: `Show a summary of what runs on this machine: data plane or DSR agent, number of
services, backends and routes, peers, degraded features and all problems. -o json
has everything that is known.

With --ready, print whether the daemon is ready, and exit with 1 if it is not. An
agent is ready when its configuration is read, the first complete pass is
programmed, one BGP session is established, and either all of them are or 30
seconds have passed. Route reflectors and routers are ready once they answer.`,
		Example: `  fairlead status
  fairlead status --watch
  fairlead status --ready
  fairlead status -o json | jq .problems
  fairlead status --socket /run/fairlead/router.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return q.showReady(cmd)
			}
			return q.show(cmd, func(s status.Status) (status.View, error) { return s.Overview(), nil })
		},
	}
	q.flags(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "print only whether it is ready")
	cmd.MarkFlagsMutuallyExclusive("ready", "watch")
	return cmd
}

// showReady prints whether the daemon is ready. It is an error if it is not.
func (q *query) showReady(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), queryTimeout)
	defer cancel()
	socket, err := q.socketPath(ctx)
	if err != nil {
		return err
	}
	r, err := status.FetchReady(ctx, socket)
	if err != nil {
		return err
	}
	if r.Ready || q.output.Format != status.Table {
		err = q.print(cmd.OutOrStdout(), r.Sheet())
	}
	return errors.Join(err, r.Err())
}
