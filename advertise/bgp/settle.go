package bgp

import (
	"context"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// A router that starts beside routes that the kernel holds from before must not
// act on the first route of many: the others would be taken away and put back.
// It waits until the sessions are up, settleLimit for the last of them once the
// first is; then until every peer has sent its routes, and nothing was heard for
// settleQuiet, again at most settleLimit. A peer that has no route to send looks
// like one that is slow, and takes all of it, as do balancers that dial the
// router, which cannot be counted. (Only peers that restart gracefully would say
// where their routes end, RFC 4724; ours do not.)
const (
	settleQuiet = 250 * time.Millisecond
	settleLimit = 3 * time.Second
)

func (r *Router) settle() {
	for len(r.e.dials) > 0 && r.e.ctx.Err() == nil && !r.e.await(r.e.ctx, time.Minute, func() bool { return r.e.established() > 0 }) {
		r.e.log.Warn("no BGP session yet; the kernel's routes stay as they are")
	}
	if !r.held {
		return // nothing to take away
	}
	all := func() bool { return len(r.e.dials) > 0 && r.e.established() >= len(r.e.dials) }
	r.e.await(r.e.ctx, settleLimit, all)
	for end := time.Now().Add(settleLimit); r.e.ctx.Err() == nil && time.Now().Before(end); {
		if !r.heard(settleQuiet) && all() && r.e.sentRoutes() {
			return
		}
	}
}

// sentRoutes says whether each dialled peer has sent a route at least.
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
