package bgp

import (
	"time"
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
	ctx := r.e.Context()
	up, dialed := r.e.Established()
	some := func() bool { up, _ = r.e.Established(); return up > 0 }
	all := func() bool { up, _ = r.e.Established(); return dialed > 0 && up >= dialed }
	for dialed > 0 && ctx.Err() == nil && !r.e.Await(ctx, time.Minute, some) {
		r.e.Log.Warn("no BGP session yet, the routes in the kernel stay unchanged")
	}
	if !r.held {
		return // nothing to remove
	}
	r.e.Await(ctx, settleLimit, all)
	for end := time.Now().Add(settleLimit); ctx.Err() == nil && time.Now().Before(end); {
		if !r.await(settleQuiet) && all() && r.e.AllSent() {
			return
		}
	}
}
