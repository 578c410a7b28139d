package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newServicesCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "services [SERVICE...]",
		Short: "The services, and whether each frontend is served",
		Long: `Services shows each frontend (VIP and port) with its method, its scheduler, its
state, and how many of its servers take new flows. A state other than active
comes with its reason. A SERVICE is "namespace/name", or a name alone.`,
		Example: `  fairlead services
  fairlead services default/web -o yaml
  fairlead services --watch=5s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) {
				s, err := s.Only(args...)
				return s.ServicesView(), err
			})
		},
	}
	l.flags(cmd)
	cmd.ValidArgsFunction = l.serviceNames
	return cmd
}
