package bgp

import (
	"context"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// A router that starts while the kernel has routes from before must not act on the first
// of many routes: the others would be removed and added again. It waits until the
// sessions are up, at most settleLimit for the last of them once the first is up; then
// until every peer has sent its routes and nothing was received for settleQuiet, again at
// most settleLimit. A peer without routes cannot be distinguished from a slow one and
// takes the full time, as do load balancers that dial the router, which cannot be
// counted. (Only peers with graceful restart would mark the end of their routes, RFC
// 4724; ours do not support it.)
const (
	settleQuiet = 250 * time.Millisecond
	settleLimit = 3 * time.Second
)

func (r *Router) settle() {
	for len(r.e.dials) > 0 && r.e.ctx.Err() == nil && !r.e.await(r.e.ctx, time.Minute, func() bool { return r.e.established() > 0 }) {
		r.e.log.Warn("no BGP session yet, the routes in the kernel stay unchanged")
	}
	if !r.held {
		return // nothing to remove
	}
	all := func() bool { return len(r.e.dials) > 0 && r.e.established() >= len(r.e.dials) }
	r.e.await(r.e.ctx, settleLimit, all)
	for end := time.Now().Add(settleLimit); r.e.ctx.Err() == nil && time.Now().Before(end); {
		if !r.await(settleQuiet) && all() && r.e.sentRoutes() {
			return
		}
	}
}

// sentRoutes reports whether each dialed peer has sent at least one route.
func (e *engine) sentRoutes() bool {
	sent := 0
	_ = e.server.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
		for _, f := range p.GetAfiSafis() {
			if f.GetState().GetReceived() > 0 {
				sent++
				return
			}
		}
	})
	return sent >= len(e.dials)
}
