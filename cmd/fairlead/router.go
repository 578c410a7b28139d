package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/router"
)

func newRouterCommand() *cobra.Command {
	c := config.Router{AS: config.DefaultAS, BFD: true, MaxPrefixes: bgp.DefaultMaxRouterPrefixes, MaxTotal: bgp.DefaultMaxRouterTotal, MaxClients: bgp.DefaultMaxPeers, Socket: status.Socket(status.RoleRouter)}
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
			return runRouter(cmd.Context(), c, remove)
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
	metricsFlag(cmd, &c.Metrics)
	f.BoolVar(&remove, "remove-routes-on-exit", false, "remove routes and restore sysctls on exit")
	cmd.AddCommand(newRouterGuardCommand())
	return cmd
}

func runRouter(ctx context.Context, c config.Router, remove bool) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if len(r.ShadowProtocols) == 0 {
		if err := routerConfig(r).Validate(); err != nil {
			return config.Invalid(err)
		}
	}
	lacking := lacks(routerPrivileges(r)...)
	defer func() { err = held.Blame(err, lacking) }()
	collectLess()
	settings, err := router.RouterSysctls(c.HashSeed)
	if err != nil {
		return err
	}
	restore, err := sysctl.Change(settings)
	if err != nil {
		return err
	}
	if remove {
		defer func() { err = errors.Join(err, restore()) }()
	}
	if len(r.ShadowProtocols) > 0 {
		return runShadow(ctx, r)
	}
	table, err := router.New(router.Config{Metric: uint32(c.Metric), Table: uint32(c.Table), Log: slog.Default()})
	if err != nil {
		return err
	}
	router, err := startRouter(r, table)
	if err != nil {
		return errors.Join(err, table.Close(remove))
	}
	slog.Info("routing", "asn", r.AS, "peers", r.Router.Peers)
	err = keepRouting(ctx, r, router, table)
	return errors.Join(err, router.Close(), table.Close(remove))
}

// startRouter starts to receive routes and install them.
func startRouter(r *config.ResolvedRouter, table *router.Table) (*bgp.Router, error) {
	before, err := table.List()
	if err != nil {
		return nil, err
	}
	c := routerConfig(r)
	c.Held = len(before) > 0
	return bgp.NewRouter(c, func(routes []advertise.RouteSet) {
		_ = table.Set(routes) // the table logs, reports and retries failures
	})
}

// keepRouting keeps the kernel in line with the received routes, and serves the socket,
// until ctx is canceled or either fails.
func keepRouting(ctx context.Context, c *config.ResolvedRouter, router *bgp.Router, table *router.Table) error {
	look := routing(status.RoleRouter)
	look.Peers, look.Received, look.Refused = router.Peers, router.Routes, router.Refused
	look.Table, look.Degraded = table, table.Degraded
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer cancel(); return table.Keep(ctx) })
	group.Go(func() error {
		defer cancel()
		return serveStatus(ctx, c.Socket, c.Metrics, func() status.Status { return look.Gather(time.Now()) })
	})
	return group.Wait()
}

func routerConfig(r *config.ResolvedRouter) bgp.RouterConfig {
	c := bgp.RouterConfig{AS: r.AS, RouterID: r.RouterID, Accept: r.Accept, MaxPrefixes: r.MaxPrefixes, MaxTotal: r.MaxTotal, Log: slog.Default()}
	for _, p := range r.Peers {
		c.Peers = append(c.Peers, peerConfig(p, r.Password, r.BFD))
	}
	if len(r.Balancers) > 0 {
		c.Groups = []bgp.NeighborGroup{{
			Name: "balancers", Prefixes: r.Balancers, AS: r.AS, Password: r.Password, BFD: r.BFD, MaxPrefixes: r.MaxPrefixes, MaxPeers: r.MaxClients,
		}}
	}
	return c
}

func peerConfig(p config.Peer, password string, bfd bool) bgp.PeerConfig {
	return bgp.PeerConfig{Address: p.Address.Addr(), Port: p.Address.Port(), AS: p.AS, Password: password, BFD: bfd}
}
