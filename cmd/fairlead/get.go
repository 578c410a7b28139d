package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List services, backends, routes, peers, flows or events",
		Long: `List what the agent, route reflector or router on this machine knows.

With -o wide, tables have all columns; -o json and -o yaml have all fields.`,
		Example: `  fairlead get services
  fairlead get backends web -o wide
  fairlead get routes -w`,
		GroupID: groupQuery,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGetServicesCommand(), newGetBackendsCommand(), newGetRoutesCommand(), newGetPeersCommand(), newGetFlowsCommand(), newGetEventsCommand())
	return cmd
}

func newGetServicesCommand() *cobra.Command {
	var q query.Query
	cmd := &cobra.Command{
		Use:     "services [SERVICE...]",
		Aliases: []string{"service", "svc"},
		Short:   "List frontends, their state and their healthy backends",
		Long: `List each frontend (VIP and port) with its forwarding mode, scheduler, state and
the number of backends that receive new flows. A state other than active has a
reason. SERVICE is NAMESPACE/NAME or NAME.`,
		Example: `  fairlead get services
  fairlead get services default/web -o yaml
  fairlead get services -n default --watch=5s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.ShowServices(cmd, args, status.Status.ServicesView)
		},
	}
	q.Flags(cmd)
	q.NamespaceFlag(cmd)
	cmd.ValidArgsFunction = q.Complete(query.ServiceNames)
	return cmd
}

func newGetBackendsCommand() *cobra.Command {
	var q query.Query
	cmd := &cobra.Command{
		Use:     "backends [SERVICE...]",
		Aliases: []string{"backend"},
		Short:   "List backends, their health, weight and traffic",
		Long: `List each backend of each frontend with its weight (0 drains it), its health, how
long it has had this health, and the error of its last failed health check.
SERVICE is NAMESPACE/NAME or NAME.`,
		Example: `  fairlead get backends
  fairlead get backends web -o wide
  fairlead get backends -o json | jq '.[] | select(.health == "down")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.ShowServices(cmd, args, status.Status.BackendsView)
		},
	}
	q.Flags(cmd)
	q.NamespaceFlag(cmd)
	cmd.ValidArgsFunction = q.Complete(query.ServiceNames)
	return cmd
}

func newGetRoutesCommand() *cobra.Command {
	var q query.Query
	cmd := &cobra.Command{
		Use:     "routes",
		Aliases: []string{"route"},
		Short:   "List advertised, received and installed routes",
		Long: `List routes. On a load balancer: each prefix with its next hop, whether it is
advertised, and the reason if it is not. On a route reflector: the received
paths. On a router: the installed routes, in the format of "ip route".`,
		Example: `  fairlead get routes
  fairlead get routes -o yaml
  fairlead get routes --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return q.Show(cmd, func(s status.Status) (status.View, error) { return s.RoutesView(), nil })
		},
	}
	q.Flags(cmd)
	return cmd
}
