package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newStatusCommand() *cobra.Command {
	var q query.Query
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
				return q.ShowReady(cmd)
			}
			return q.Show(cmd, func(s status.Status) (status.View, error) { return s.Overview(), nil })
		},
	}
	q.Flags(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "print only whether it is ready")
	cmd.MarkFlagsMutuallyExclusive("ready", "watch")
	return cmd
}
