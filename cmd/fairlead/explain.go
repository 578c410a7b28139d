package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain",
		Short:   "Explain why a service is advertised, or is not",
		Long:    `Explain the state of an object and name the rule that decides it.`,
		GroupID: groupQuery,
		Example: `  fairlead explain service default/web`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExplainServiceCommand())
	return cmd
}

func newExplainServiceCommand() *cobra.Command {
	var q query.Query
	cmd := &cobra.Command{
		Use:     "service [SERVICE...]",
		Aliases: []string{"services", "svc"},
		Short:   "Explain whether this node advertises the addresses of services",
		Long: `Print, for each address of the services, whether this load balancer advertises it
and the rule that decides. These conditions are checked in order; the first that
does not hold is the rule:

  1. A frontend with this address is programmed. Otherwise the rule is its state.
  2. An advertisement selects the address on this node.
  3. The node has a next hop.
  4. The load balancer is not draining.
  5. A BGP session is established with a peer that the advertisement selects.

kubectl fairlead explain service queries all nodes of a cluster.`,
		Example: `  fairlead explain service default/web
  fairlead explain service -n default -o json`,
		ValidArgsFunction: q.Complete(query.ServiceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.ShowServices(cmd, args, status.Status.ExplainServiceView)
		},
	}
	q.Flags(cmd)
	q.NamespaceFlag(cmd)
	return cmd
}
