package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/status"
)

func newStatusCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How the agent here is doing, and what it refused",
		Long: `Status sums up the agent: its data plane, how many
services, servers and routes it holds, its routing peers, and every problem by
name. As JSON or YAML it is all that the agent knows.`,
		Example: `  fairlead status
  fairlead status --watch
  fairlead status -o json | jq .problems
  fairlead status --socket /run/fairlead/second.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) { return s.Overview(), nil })
		},
	}
	l.flags(cmd)
	return cmd
}
