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
		Short: "Run an upstream router: learn all paths, spread packets over them",
		Long: `Router learns the balancers' routes from reflectors (or from balancers that dial
it) and puts them into this machine's kernel: for each prefix a resilient next-hop
group, so that a balancer that goes takes only its own flows along. Next hops get
shares by the bandwidths that their paths name.

It sets the sysctls that hashing needs. They and its routes stay when it ends, for
packets to flow on and the next start to find, unless --remove-routes-on-exit says otherwise.

With --shadow-protocol it has no BGP session: another routing daemon has them, and router
holds, beside each of its routes with several next hops, one over a resilient group
of the same next hops, which the kernel prefers. Those go when it ends, even when it
is killed: packets then take the daemon's own routes.`,
		Example: `  fairlead router --router-id 10.0.0.110 --peer 10.0.0.109
  fairlead router --shadow-protocol bgp --accept-prefixes 10.1.0.0/16`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("metric") {
				c.Metric = router.DefaultMetric
				if len(c.Beside) > 0 {
					c.Metric = router.DefaultBesideMetric
				}
			}
			if !cmd.Flags().Changed("max-prefixes") && len(c.Peers) == 0 {
				c.MaxPrefixes = bgp.DefaultMaxPrefixes
			}
			return runRouter(cmd.Context(), c, remove)
		},
	}
	f := cmd.Flags()
	f.Uint32Var(&c.AS, "local-asn", c.AS, "our AS `number`")
	f.StringVar(&c.RouterID, "router-id", "", "our router ID, an IPv4 `address` of this machine")
	f.StringSliceVar(&c.Peers, "peer", nil, "reflectors to dial: `address[:port][@AS]`")
	f.StringSliceVar(&c.Balancers, "listen-range", nil, "`prefix`es from which balancers dial us directly")
	f.StringVar(&c.PasswordFile, "password-file", "", "`file` with the TCP MD5 password of all sessions")
	f.BoolVar(&c.BFD, "bfd", c.BFD, "watch neighbours by BFD")
	f.StringSliceVar(&c.Accept, "accept-prefixes", nil, "`prefix`es within which routes are taken in (default: all but default routes)")
	f.Uint32Var(&c.MaxPrefixes, "max-prefixes", c.MaxPrefixes, fmt.Sprintf("paths of each family that a peer may send, %d by default where all are --listen-range; one that sends more is cut; 0: any `number`", bgp.DefaultMaxPrefixes))
	f.Uint32Var(&c.MaxTotal, "max-total-prefixes", c.MaxTotal, "paths of both families that all peers together may send; the one with most is cut; 0: any `number`")
	f.IntVar(&c.MaxClients, "max-clients", c.MaxClients, "balancers that may have sessions; 0: any `number`")
	f.Uint32Var(&c.HashSeed, "hash-seed", 0, "`number` that several routers have alike, to send a flow to the same balancer (Linux 6.11)")
	f.StringSliceVar(&c.Beside, "shadow-protocol", nil, "make the routes of another daemon resilient: their `protocol`, bgp (FRR), bird or a number")
	f.IntVar(&c.Metric, "metric", 0, fmt.Sprintf("metric of the routes (default: %d, with --shadow-protocol %d)", router.DefaultMetric, router.DefaultBesideMetric))
	f.IntVar(&c.Table, "table", 0, "routing table (default: main)")
	f.StringVar(&c.Socket, "socket", c.Socket, "`file` to answer status and routes on")
	metricsFlag(cmd, &c.Metrics)
	f.BoolVar(&remove, "remove-routes-on-exit", false, "take the routes away when ending, and put the sysctls back")
	cmd.AddCommand(newRouterGuardCommand())
	return cmd
}

func runRouter(ctx context.Context, c config.Router, remove bool) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if len(r.Beside) == 0 {
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
	if len(r.Beside) > 0 {
		return runBeside(ctx, r)
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
	look.Peers, look.Heard, look.Refused = router.Peers, router.Routes, router.Refused
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
