package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain why an object is as it is",
		Long: `Explain an object by the steps from its manifest to the kernel and to the routers:
what decides each step, what is desired and what is programmed, and the first step
that is not complete (STOPS) with its reason and a fix.`,
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
		Short:   "Explain how a service gets from its manifest to the routers",
		Long: `Explain each step of a service on this node: its object is read and accepted, has an
address, its frontends are planned, their backends take flows, the kernel has what
is desired and a path to the backends, the route is advertised, and peers receive it.

Without a SERVICE, print for each address of all services whether it is advertised
and the rule that decides: the state of the frontend if it is not programmed, then
the advertisements, the next hop, a drain, and the BGP sessions, in this order.

kubectl fairlead explain service queries all nodes of a cluster.`,
		Example: `  fairlead explain service default/web
  fairlead explain service web -o json
  fairlead explain service -n default`,
		ValidArgsFunction: q.Complete(query.ServiceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return q.ShowServices(cmd, args, status.Status.ExplainServiceView)
			}
			return q.ShowOnly(cmd, selection.Selection{Services: args}, func(s status.Status) (status.View, error) {
				chains, err := explain.Services(q.InNamespace(s), args...)
				return explain.View(chains), err
			})
		},
	}
	q.Flags(cmd)
	q.NamespaceFlag(cmd)
	return cmd
}
