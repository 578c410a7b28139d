package engine

import (
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
)

// gobgp sends a new peer its table, and only a moment later counts the peer among those
// that receive changes. A route that is added or removed in between is never sent: the
// router would miss a load balancer, or keep a dead one. Therefore what was written to
// each session, including next hops and attributes, is compared with the table soon after
// the session came up and periodically, and differences are fixed.
var auditAfter = []time.Duration{0, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second}

const auditEvery = 10 * time.Second

// difference is what a peer was not sent but should have been, and vice versa.
type difference struct {
	missing int
	stale   map[paths.Key]bool
}

func (e *Engine) auditLoop(t *session.Session) {
	defer e.wg.Done()
	if !e.awaitEstablishedInside(t) {
		return
	}
	var before difference
	for i := 0; ; i++ {
		pause := auditEvery
		if i < len(auditAfter) {
			pause = auditAfter[i]
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.Done():
			timer.Stop()
			return
		case <-e.ctx.Done():
			timer.Stop()
			return
		}
		before = e.audit(t, before)
	}
}

// awaitEstablishedInside waits until gobgp considers the session established, which is
// slightly after the bytes show it.
func (e *Engine) awaitEstablishedInside(t *session.Session) bool {
	for up := false; !up; {
		_ = e.server.ListPeer(e.ctx, &api.ListPeerRequest{Address: t.Peer.String()}, func(p *api.Peer) {
			up = p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
		})
		select {
		case <-t.Done():
			return false
		case <-e.ctx.Done():
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return true
}

// audit fixes differences. Sending something twice is harmless. A superfluous path may
// already be about to be withdrawn, so it must have been in the previous difference, too.
func (e *Engine) audit(t *session.Session, before difference) difference {
	if t.Queued() { // what is about to be sent is not missing
		return before
	}
	now, err := e.compare(t)
	if err != nil {
		return before
	}
	if now.missing > 0 {
		e.sendAgain(t)
	}
	for p := range now.stale {
		if !before.stale[p] {
			continue
		}
		e.Log.Warn("sent a missed withdrawal to a BGP peer", "peer", t.Peer, "prefix", p.Prefix)
		if err := t.Withdraw(p); err != nil {
			t.Fail("failed to repeat a withdrawal: " + err.Error())
			return now
		}
		delete(now.stale, p)
	}
	return now
}

// refreshEvery is the minimum interval at which a peer can request all routes again.
// gobgp would answer every ROUTE-REFRESH of 23 bytes with its complete table, and queue
// the answers without limit.
const refreshEvery = time.Second

// refreshLoop answers the ROUTE-REFRESH messages of a peer until its session ends.
func (e *Engine) refreshLoop(t *session.Session) {
	defer e.wg.Done()
	if !e.awaitEstablishedInside(t) {
		return
	}
	for {
		select {
		case <-t.Refresh():
			e.sendAgain(t)
		case <-t.Done():
			return
		case <-e.ctx.Done():
			return
		}
		select {
		case <-time.After(refreshEvery):
		case <-t.Done():
		case <-e.ctx.Done():
		}
	}
}

// sendAgain sends a peer all of its routes again.
func (e *Engine) sendAgain(t *session.Session) {
	_ = e.server.ResetPeer(e.ctx, &api.ResetPeerRequest{Address: t.Peer.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT})
}

func (e *Engine) compare(t *session.Session) (difference, error) {
	sent, ids := t.Sent()
	d := difference{stale: map[paths.Key]bool{}}
	for _, family := range []pkt.Family{pkt.RF_IPv4_UC, pkt.RF_IPv6_UC} {
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
		err := e.server.ListPath(req, func(nlri pkt.NLRI, all []*apiutil.Path) {
			prefix := paths.Prefix(nlri)
			several := ids[family]
			if !several {
				all = all[:min(1, len(all))] // only the best one
			}
			for i, p := range all {
				if p.PeerAddress == t.Peer || several && i >= int(t.Group.SendMax) {
					continue
				}
				key := paths.Key{Prefix: prefix}
				if several {
					key.ID = p.LocalID
				}
				attrs, is := e.exported(t.Group, p.Attrs)
				if !is {
					continue
				}
				if sent[key] != (paths.Sent{NextHop: t.NextHop(paths.NextHop(p.Attrs, prefix.Addr().Is4())), Attributes: paths.Words(attrs)}) {
					d.missing++
				}
				delete(sent, key)
			}
		})
		if err != nil {
			return d, err
		}
	}
	for p := range sent {
		d.stale[p] = true
	}
	return d, nil
}
