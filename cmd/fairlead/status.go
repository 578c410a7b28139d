package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newStatusCommand() *cobra.Command {
	var q query.Query
	var ready, tables bool
	var agents []string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the agent, route reflector or router",
		Long: `Show a summary of what runs on this machine: data plane or DSR agent, number of
services, backends and routes, peers, degraded features and all problems. -o json
has everything that is known.

With --ready, print whether the daemon is ready, and exit with 1 if it is not. An
agent is ready when its configuration is read, the first complete pass is
programmed, one BGP session is established, and either all of them are or 30
seconds have passed. Route reflectors and routers are ready once they answer.

With --agents, query several daemons, print whether they agree, and list what they
disagree about: releases, frontends, backends, Maglev tables, routes (also those of
routers and reflectors), keys and clocks. If they disagree, they are asked again after
two seconds, so that a change in progress is no disagreement. Exit code 1 means that
they disagree or that one did not answer. Sockets of other machines can be forwarded
by ssh -L.`,
		Example: `  fairlead status
  fairlead status --watch
  fairlead status --ready
  fairlead status -o json | jq .problems
  fairlead status --socket /run/fairlead/router.sock
  fairlead status --agents /tmp/lb1.sock,/tmp/lb2.sock,/run/fairlead/router.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return q.ShowReady(cmd)
			}
			if len(agents) > 0 {
				return q.ShowVerdict(cmd, agents)
			}
			return q.ShowOnly(cmd, selection.Selection{Tables: tables}, func(s status.Status) (status.View, error) { return s.Overview(), nil })
		},
	}
	q.Flags(cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "print only whether it is ready")
	cmd.Flags().BoolVar(&tables, "tables", false, "with -o json: include digests of Maglev tables")
	cmd.Flags().StringSliceVar(&agents, "agents", nil, "`FILE`s of the sockets of daemons to compare")
	cmd.MarkFlagsMutuallyExclusive("ready", "watch", "agents")
	cmd.MarkFlagsMutuallyExclusive("socket", "agents")
	return cmd
}
