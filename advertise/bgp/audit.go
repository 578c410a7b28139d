package bgp

import (
	"maps"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
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
	stale   map[path]bool
}

func (e *engine) auditLoop(t *tap) {
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
		case <-t.done:
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
func (e *engine) awaitEstablishedInside(t *tap) bool {
	for up := false; !up; {
		_ = e.server.ListPeer(e.ctx, &api.ListPeerRequest{Address: t.peer.String()}, func(p *api.Peer) {
			up = p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
		})
		select {
		case <-t.done:
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
func (e *engine) audit(t *tap, before difference) difference {
	if t.queued() { // what is about to be sent is not missing
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
		e.log.Warn("sent a missed withdrawal to a BGP peer", "peer", t.peer, "prefix", p.prefix)
		if err := t.withdraw(p); err != nil {
			t.fail("failed to repeat a withdrawal: " + err.Error())
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
func (e *engine) refreshLoop(t *tap) {
	defer e.wg.Done()
	if !e.awaitEstablishedInside(t) {
		return
	}
	for {
		select {
		case <-t.refresh:
			e.sendAgain(t)
		case <-t.done:
			return
		case <-e.ctx.Done():
			return
		}
		select {
		case <-time.After(refreshEvery):
		case <-t.done:
		case <-e.ctx.Done():
		}
	}
}

// sendAgain sends a peer all of its routes again.
func (e *engine) sendAgain(t *tap) {
	_ = e.server.ResetPeer(e.ctx, &api.ResetPeerRequest{Address: t.peer.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT})
}

func (e *engine) compare(t *tap) (difference, error) {
	t.mu.Lock()
	sent := maps.Clone(t.sent)
	addPath := t.addPath
	t.mu.Unlock()
	d := difference{stale: map[path]bool{}}
	for _, family := range []pkt.Family{pkt.RF_IPv4_UC, pkt.RF_IPv6_UC} {
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
		err := e.server.ListPath(req, func(nlri pkt.NLRI, paths []*apiutil.Path) {
			prefix := nlriPrefix(nlri)
			several := addPath[family] != 0
			if !several {
				paths = paths[:min(1, len(paths))] // only the best one
			}
			for i, p := range paths {
				if p.PeerAddress == t.peer || several && i >= int(t.group.sendMax) {
					continue
				}
				key := path{prefix: prefix}
				if several {
					key.id = p.LocalID
				}
				attrs, is := e.exported(t.group, p.Attrs)
				if !is {
					continue
				}
				if sent[key] != (sentRoute{t.nextHopFor(nextHop(p.Attrs, prefix.Addr().Is4())), words(attrs)}) {
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

// withdraw writes a withdrawal, bypassing gobgp. gobgp writes each message with one call,
// so ours goes between two of them.
func (t *tap) withdraw(p path) error {
	nlri, err := pkt.NewIPAddrPrefix(p.prefix)
	if err != nil {
		return err
	}
	list := []pkt.PathNLRI{{NLRI: nlri, ID: p.id}}
	msg := pkt.NewBGPUpdateMessage(list, nil, nil)
	if p.prefix.Addr().Is6() {
		gone, err := pkt.NewPathAttributeMpUnreachNLRI(pkt.RF_IPv6_UC, list)
		if err != nil {
			return err
		}
		msg = pkt.NewBGPUpdateMessage(nil, []pkt.PathAttributeInterface{gone}, nil)
	}
	t.mu.Lock()
	options := &pkt.MarshallingOption{AddPath: t.addPath}
	t.mu.Unlock()
	b, err := msg.Serialize(options)
	if err != nil {
		return err
	}
	_, err = t.Write(b)
	return err
}
