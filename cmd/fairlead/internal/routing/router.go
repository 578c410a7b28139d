// Package routing runs the daemons of the routing side: the upstream router, alone or next
// to another routing daemon, and the route reflector.
//
// Flags are defined by the commands; routes in the kernel are up to package router, BGP to
// advertise/bgp. These daemons are tested as processes in lab/e2e/router and lab/interop.
package routing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/router"
)

// RunRouter runs a router until ctx is canceled; remove means that it removes its routes
// and restores sysctls then.
func RunRouter(ctx context.Context, c config.Router, remove bool) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if len(r.ShadowProtocols) == 0 {
		if err := routerConfig(r).Validate(); err != nil {
			return config.Invalid(err)
		}
	}
	lacking := daemon.Lacks(routerPrivileges(r)...)
	defer func() { err = held.Blame(err, lacking) }()
	daemon.LetHeapGrow(heapGrowth)
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
	look := statusBase(status.RoleRouter)
	events := openJournal(look, c.Socket)
	defer events.Close()
	router, err := startRouter(r, table, events)
	if err != nil {
		return errors.Join(err, table.Close(remove))
	}
	slog.Info("routing", "asn", r.AS, "peers", r.Router.Peers)
	err = keepRouting(ctx, r, router, table, look, events)
	return errors.Join(err, router.Close(), table.Close(remove))
}

// startRouter starts to receive routes and install them.
func startRouter(r *config.ResolvedRouter, table *router.Table, events *daemon.Journal) (*bgp.Router, error) {
	before, err := table.List()
	if err != nil {
		return nil, err
	}
	c := routerConfig(r)
	c.Held, c.Events = len(before) > 0, events.Record
	return bgp.NewRouter(c, func(routes []advertise.RouteSet) {
		_ = table.Set(routes) // the table logs, reports and retries failures
	})
}

// keepRouting keeps the kernel in line with the received routes, and serves the socket,
// until ctx is canceled or either fails.
func keepRouting(ctx context.Context, c *config.ResolvedRouter, router *bgp.Router, table *router.Table, look status.Routing, events *daemon.Journal) error {
	look.Peers, look.Received, look.Refused = router.Peers, router.Routes, router.Refused
	look.Table, look.Degraded = table, table.Degraded
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer cancel(); return table.Keep(ctx) })
	group.Go(func() error {
		defer cancel()
		return daemon.ServeStatus(ctx, c.Socket, c.Monitoring, table.Stuck, func() status.Status { return look.Gather(time.Now()) }, events.Endpoint())
	})
	return group.Wait()
}

func routerConfig(r *config.ResolvedRouter) bgp.RouterConfig {
	c := bgp.RouterConfig{AS: r.AS, RouterID: r.RouterID, Accept: r.Accept, MaxPrefixes: r.MaxPrefixes, MaxTotal: r.MaxTotal, Log: slog.Default()}
	for _, p := range r.Peers {
		c.Peers = append(c.Peers, daemon.PeerConfig(p, r.Password, r.BFD))
	}
	if len(r.Balancers) > 0 {
		c.Groups = []bgp.NeighborGroup{{
			Name: "balancers", Prefixes: r.Balancers, AS: r.AS, Password: r.Password, BFD: r.BFD, MaxPrefixes: r.MaxPrefixes, MaxPeers: r.MaxClients,
		}}
	}
	return c
}

// routerPrivileges returns a router's roles as named in package privilege.
func routerPrivileges(r *config.ResolvedRouter) []string {
	if len(r.Router.Balancers) > 0 {
		return []string{privilege.Router, privilege.RouterListens}
	}
	return []string{privilege.Router}
}
