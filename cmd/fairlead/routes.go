package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newRoutesCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "The routes announced, heard or installed, and why others are not",
		Long: `Routes shows on a balancer each prefix with its next hop, whether peers have been
told of it and since when, and the reason where they have not; on a reflector the
paths that the balancers announce; on a router its kernel's routes, as a table just
as "ip route" shows them.`,
		Example: `  fairlead routes
  fairlead routes -o yaml
  fairlead routes --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) { return s.RoutesView(), nil })
		},
	}
	l.flags(cmd)
	return cmd
}
