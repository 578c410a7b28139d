package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/routing"
	"github.com/fairlead/fairlead/router"
)

func newRouterCommand() *cobra.Command {
	c := config.Router{AS: config.DefaultAS, BFD: true, MaxPrefixes: bgp.DefaultMaxRouterPrefixes, MaxTotal: bgp.DefaultMaxRouterTotal, MaxClients: bgp.DefaultMaxPeers, Socket: socket.Default(status.RoleRouter)}
	var remove bool
	cmd := &cobra.Command{
		Use:   "router",
		Short: "Run an upstream BGP router with resilient ECMP",
		Long: `Run a BGP router for load balancers: receive all paths of their prefixes and install
each prefix as a resilient next-hop group, so that losing a load balancer moves only
its own flows. Paths with a bandwidth get weights.

It sets the sysctls that ECMP hashing needs. Routes and sysctls stay when it exits,
unless --remove-routes-on-exit is set.

With --shadow-protocol it has no BGP sessions: another routing daemon has, and the
router adds, for each of that daemon's multipath routes, a preferred route with a
resilient group of the same next hops. These routes disappear when it exits or is
killed; packets then use the daemon's routes.`,
		Example: `  fairlead router --router-id 10.0.0.110 --peer 10.0.0.109
  fairlead router --shadow-protocol bgp --accept-prefixes 10.1.0.0/16`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("metric") {
				c.Metric = router.DefaultMetric
				if len(c.ShadowProtocols) > 0 {
					c.Metric = router.DefaultShadowMetric
				}
			}
			if !cmd.Flags().Changed("max-prefixes") && len(c.Peers) == 0 {
				c.MaxPrefixes = bgp.DefaultMaxPrefixes
			}
			return routing.RunRouter(cmd.Context(), c, remove)
		},
	}
	f := cmd.Flags()
	f.Uint32Var(&c.AS, "local-asn", c.AS, "local AS `NUMBER`")
	f.StringVar(&c.RouterID, "router-id", "", "router ID, an IPv4 `ADDR` of this machine")
	f.StringSliceVar(&c.Peers, "peer", nil, "`ADDR[:PORT][@ASN]` of a route reflector; repeatable")
	f.StringSliceVar(&c.Balancers, "listen-range", nil, "`CIDR` of load balancers that connect directly; repeatable")
	f.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the TCP MD5 password of all sessions")
	f.BoolVar(&c.BFD, "bfd", c.BFD, "monitor peers by BFD")
	f.StringSliceVar(&c.Accept, "accept-prefixes", nil, "`CIDR` within which routes are accepted; repeatable (default: all except default routes)")
	f.Uint32Var(&c.MaxPrefixes, "max-prefixes", c.MaxPrefixes, fmt.Sprintf("maximum `NUMBER` of paths per family from a peer; a peer that sends more is disconnected; 0 is no limit (default %d if all peers are --listen-range)", bgp.DefaultMaxPrefixes))
	f.Uint32Var(&c.MaxTotal, "max-total-prefixes", c.MaxTotal, "maximum `NUMBER` of paths from all peers; the peer with the most is disconnected; 0 is no limit")
	f.IntVar(&c.MaxClients, "max-clients", c.MaxClients, "maximum `NUMBER` of load balancer sessions; 0 is no limit")
	f.Uint32Var(&c.HashSeed, "hash-seed", 0, "`NUMBER` that routers share to send a flow to the same load balancer (Linux 6.11)")
	f.StringSliceVar(&c.ShadowProtocols, "shadow-protocol", nil, "`PROTOCOL` of another daemon's routes (bgp, bird or a number) to shadow with resilient routes")
	f.IntVar(&c.Metric, "metric", 0, fmt.Sprintf("metric of the routes (default: %d, with --shadow-protocol %d)", router.DefaultMetric, router.DefaultShadowMetric))
	f.IntVar(&c.Table, "table", 0, "routing table (default: main)")
	f.StringVar(&c.Socket, "socket", c.Socket, "`FILE` of the status socket")
	monitoringFlags(cmd, &c.Monitoring)
	f.BoolVar(&remove, "remove-routes-on-exit", false, "remove routes and restore sysctls on exit")
	cmd.AddCommand(newRouterGuardCommand())
	return cmd
}

func newRouterGuardCommand() *cobra.Command {
	var metric, number int
	cmd := &cobra.Command{
		Use:     "guard",
		Short:   "Remove the resilient routes once standard input ends",
		Example: `  fairlead router guard --metric 10`,
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE: func(*cobra.Command, []string) error {
			return routing.Guard(metric, number)
		},
	}
	cmd.Flags().IntVar(&metric, "metric", router.DefaultShadowMetric, "metric of the routes")
	cmd.Flags().IntVar(&number, "table", 0, "routing table")
	return cmd
}
