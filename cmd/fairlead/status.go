package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/status"
)

func newStatusCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How the agent, reflector or router here is doing",
		Long: `Status sums up what runs here. Of an agent: its data plane or server half, how
many services, servers and routes it holds, its routing peers, and every problem
by name. Of a reflector or a router: its peers and routes. As JSON or YAML it is
all that is known.`,
		Example: `  fairlead status
  fairlead status --watch
  fairlead status -o json | jq .problems
  fairlead status --socket /run/fairlead/router.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) { return s.Overview(), nil })
		},
	}
	l.flags(cmd)
	return cmd
}
