package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
)

func newBackendsCommand() *cobra.Command {
	var l look
	cmd := &cobra.Command{
		Use:   "backends [SERVICE...]",
		Short: "The servers: health, weight, traffic",
		Long: `Backends shows each server behind each frontend: its weight (0 drains it), its
health and since when, the error of its last failed check, and what it was
sent. A SERVICE is "namespace/name", or a name alone.`,
		Example: `  fairlead backends
  fairlead backends web
  fairlead backends -o json | jq '.[] | select(.health == "down")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.show(cmd, func(s status.Status) (status.View, error) {
				s, err := s.Only(args...)
				return s.BackendsView(), err
			})
		},
	}
	l.flags(cmd)
	cmd.ValidArgsFunction = l.serviceNames
	return cmd
}
