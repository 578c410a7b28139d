package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/query"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain why a service, backend, route or flow is as it is",
		Long: `Explain an object by the steps from its manifest to the kernel and to the routers:
what decides each step, what is desired and what is programmed, and the first step
that is not complete (STOPS) with its reason and a fix.`,
		GroupID: groupQuery,
		Example: `  fairlead explain service default/web
  fairlead explain backend 172.16.1.10
  fairlead explain route 10.1.1.0/24
  fairlead explain flow 192.0.2.7:1234 10.1.1.1:80`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExplainServiceCommand(), newExplainBackendCommand(), newExplainRouteCommand(), newExplainFlowCommand())
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

func newExplainBackendCommand() *cobra.Command {
	var q query.Query
	cmd := &cobra.Command{
		Use:     "backend BACKEND",
		Aliases: []string{"backends"},
		Short:   "Explain whether a backend gets flows",
		Long: `Explain a backend on this node: the services that have it, its health check with the
last error, whether each frontend selects it for new flows and for how many slots of
its Maglev table, how the kernel reaches it (next hop, MAC address, MTU), whether the
DSR agent delivers to it here, and its counters.

BACKEND is an address, with or without a port, or the name of a pod or machine.`,
		Example: `  fairlead explain backend 172.16.1.10
  fairlead explain backend 172.16.1.10:8080 -o yaml
  fairlead explain backend web-7d4b9c-x2x8z`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: q.Complete(backendNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.ShowOnly(cmd, selection.Selection{Backends: args}, func(s status.Status) (status.View, error) {
				chains, err := explain.Backends(s, args[0])
				return explain.View(chains), err
			})
		},
	}
	q.Flags(cmd)
	return cmd
}

// backendNames returns the addresses and names of the backends, for completion.
func backendNames(s status.Status) (names []string) {
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			for _, b := range f.Backends {
				names = append(names, b.Address.String(), b.Name)
			}
		}
	}
	return names
}

func newExplainRouteCommand() *cobra.Command {
	var q query.Query
	var prefix netip.Prefix
	cmd := &cobra.Command{
		Use:     "route PREFIX|ADDR",
		Aliases: []string{"routes"},
		Short:   "Explain whether a route is advertised and to which peers",
		Long: `Explain a route. On a load balancer: the frontends that it leads to, what requests it
with which attributes, whether it is advertised or withdrawn, and for each peer
whether it receives the route or which rule excludes it. On a route reflector: the
received paths. On a router: the received paths and what the kernel has of them.

With an ADDR, explain the routes that contain it.`,
		Example: `  fairlead explain route 10.1.1.0/24
  fairlead explain route 10.1.1.1
  fairlead explain route 2001:db8::1/128 -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: q.Complete(prefixes),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			prefix, err = parsePrefix(args[0])
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			only := selection.Selection{Prefixes: []netip.Prefix{prefix}}
			if prefix.IsSingleIP() {
				only.Addresses = []netip.Addr{prefix.Addr()}
			}
			return q.ShowOnly(cmd, only, func(s status.Status) (status.View, error) {
				chains, err := explain.Routes(s, prefix)
				return explain.View(chains), err
			})
		},
	}
	q.Flags(cmd)
	return cmd
}

// prefixes returns the prefixes of the routes, for completion.
func prefixes(s status.Status) (names []string) {
	for _, r := range s.Routes {
		names = append(names, r.Prefix.String())
	}
	return names
}

// parsePrefix parses a prefix, or an address as the prefix that contains only it.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is not a prefix or an address, as in 10.1.1.0/24 or 2001:db8::1", text)
	}
	return p.Masked(), nil
}
