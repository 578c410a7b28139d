package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/fairlead/fairlead/announce"
)

// coalesce is how long the router gathers changes that come together, such as
// all routes of a balancer that went away.
const coalesce = time.Millisecond

// A router that starts must not act on the first route of many: what the
// kernel holds from before its restart would be taken away and put back. It
// waits until the sessions are up, settleLimit for the last of them once the
// first is, and then until nothing was heard for settleQuiet. Balancers that
// dial the router cannot be counted; they get settleLimit.
const (
	settleQuiet = 100 * time.Millisecond
	settleLimit = 3 * time.Second
)

// Router hears of routes and says, whole, what should be in the kernel's
// table.
type Router struct {
	e    *engine
	kick chan struct{}
	wg   sync.WaitGroup
}

// NewRouter starts the sessions. change is called with the whole set of
// routes, sorted by prefix, once the sessions have settled after the start,
// and then whenever the set differs from the last one. Calls do not overlap.
// While no session has come up, it is not called: the kernel's table is better
// than none.
func NewRouter(c RouterConfig, change func([]announce.RouteSet)) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	s, err := routerEngine(c)
	if err != nil {
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	e, err := startEngine(s)
	if err != nil {
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	r := &Router{e: e, kick: make(chan struct{}, 1)}
	err = e.server.WatchEvent(e.ctx, server.WatchEventMessageCallbacks{
		OnBestPath: func([]*apiutil.Path, time.Time) {
			select {
			case r.kick <- struct{}{}:
			default:
			}
		},
	}, server.WatchBestPath(true))
	if err != nil {
		e.close()
		return nil, fmt.Errorf("BGP router: %w", err)
	}
	r.wg.Add(1)
	go r.follow(change)
	return r, nil
}

func routerEngine(c RouterConfig) (setup, error) {
	id, err := validateIdentity(c.AS, c.RouterID, c.LocalAddress)
	if err != nil {
		return setup{}, err
	}
	s := setup{as: c.AS, routerID: id, clusterID: id, local: c.LocalAddress, log: c.Log}
	if err := s.addDials(c.Peers, func(g *group) { g.receive, g.silent = true, true }); err != nil {
		return s, err
	}
	if len(c.Groups) > 0 {
		s.listen = listenAddrs(c.Listen, c.Port)
	}
	return s, s.addGroups(c.Groups, func(g *group) error {
		if g.sendMax != 0 {
			return fmt.Errorf("groups[%s].sendMax: a router passes no routes on; leave it 0", g.name)
		}
		g.silent = true
		return nil
	})
}

// follow lists the table after each event; the events themselves may come in
// another order than the changes, and tell of best paths only.
func (r *Router) follow(change func([]announce.RouteSet)) {
	defer r.wg.Done()
	r.settle()
	var last []announce.RouteSet
	for first := true; r.e.ctx.Err() == nil; {
		routes, err := r.e.routes()
		switch {
		case err == nil && (first || !sameRoutes(last, routes)):
			first, last = false, routes
			change(routes)
		case err != nil && r.e.ctx.Err() == nil:
			r.e.log.Error("reading the BGP table failed; it is read again at the next change", "error", err)
		}
		if r.heard(0) {
			time.Sleep(coalesce)
			r.drain()
		}
	}
}

// heard waits for an event, at most limit; 0 means without limit.
func (r *Router) heard(limit time.Duration) bool {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-r.kick:
		return true
	case <-late:
	case <-r.e.ctx.Done():
	}
	return false
}

func (r *Router) drain() {
	select {
	case <-r.kick:
	default:
	}
}

func (r *Router) settle() {
	if len(r.e.dials) == 0 {
		r.e.await(r.e.ctx, settleLimit, func() bool { return false })
	} else {
		for r.e.ctx.Err() == nil && !r.e.await(r.e.ctx, time.Minute, func() bool { return r.e.established() > 0 }) {
			r.e.log.Warn("no BGP session yet; the kernel's routes stay as they are")
		}
		r.e.await(r.e.ctx, settleLimit, func() bool { return r.e.established() >= len(r.e.dials) })
	}
	for end := time.Now().Add(settleLimit); r.heard(settleQuiet) && time.Now().Before(end); {
	}
}

func sameRoutes(a, b []announce.RouteSet) bool {
	return slices.EqualFunc(a, b, func(x, y announce.RouteSet) bool {
		return x.Prefix == y.Prefix && slices.Equal(x.NextHops, y.NextHops)
	})
}

// routes lists the table: the best paths of every prefix, each next hop once
// though two reflectors pass it on.
func (e *engine) routes() ([]announce.RouteSet, error) {
	var all []announce.RouteSet
	for _, family := range []pkt.Family{pkt.RF_IPv4_UC, pkt.RF_IPv6_UC} {
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
		err := e.server.ListPath(req, func(nlri pkt.NLRI, paths []*apiutil.Path) {
			set := announce.RouteSet{Prefix: nlriPrefix(nlri)}
			for _, p := range paths {
				if nh := nextHop(p.Attrs); p.Best && nh.IsValid() {
					set.NextHops = append(set.NextHops, nh)
				}
			}
			slices.SortFunc(set.NextHops, netip.Addr.Compare)
			set.NextHops = slices.Compact(set.NextHops)
			if len(set.NextHops) > 0 {
				all = append(all, set)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("BGP table of %s: %w", family, err)
		}
	}
	slices.SortFunc(all, func(a, b announce.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
	return all, nil
}

func nextHop(attrs []pkt.PathAttributeInterface) netip.Addr {
	for _, a := range attrs {
		switch a := a.(type) {
		case *pkt.PathAttributeNextHop:
			return a.Value
		case *pkt.PathAttributeMpReachNLRI:
			return a.Nexthop
		}
	}
	return netip.Addr{}
}

// Routes gives what is heard now.
func (r *Router) Routes() ([]announce.RouteSet, error) { return r.e.routes() }

// Peers tells how the sessions stand.
func (r *Router) Peers() []announce.Peer { return r.e.list() }

// AwaitEstablished waits until a session with every dialled peer is up.
func (r *Router) AwaitEstablished(ctx context.Context) error { return r.e.awaitEstablished(ctx) }

// Close ends the sessions; change is not called any more.
func (r *Router) Close() error {
	r.e.close()
	r.wg.Wait()
	return nil
}
