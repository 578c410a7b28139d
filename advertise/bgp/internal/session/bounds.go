package session

import (
	"context"
	"fmt"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/internal/sleep"
)

// Limits for what one neighbor, and all together, may send: the former contains a
// misconfiguration of one, the latter limits the memory of the process, however many
// neighbors there are.
const (
	// CutFor is how long a disconnected neighbor must stay away.
	CutFor = time.Minute

	// countEvery is the minimum interval at which a neighbor's paths are counted. gobgp
	// does nothing else meanwhile, so all counts together may take a fifth of the time.
	countEvery = 20 * time.Millisecond
	// leastGrowth is the number of additional paths after which they are counted again.
	leastGrowth = 64
	// churn is how many times per minute a neighbor may advertise the maximum number of
	// paths, but in any case leastUpdates paths.
	churn        = 4
	leastUpdates = 1000
	// families is the number of address families in a session.
	families = 2
)

// tally counts the routes of a received UPDATE: each is work for us and for all routers.
func (t *Session) tally(body []byte) {
	if t.SendOnly {
		return
	}
	t.mu.Lock()
	if t.status.Closed {
		t.mu.Unlock()
		return
	}
	n := wire.CountRoutes(body, t.receivesIDs)
	t.fresh += n
	t.Total.paths.Add(int64(n))
	if now := time.Now(); now.Sub(t.minute) > time.Minute {
		t.minute, t.updates = now, 0
	}
	t.updates += n
	look := t.floods() || t.mayExceed() || t.Total.MaxPaths > 0 && t.fresh > max(leastGrowth, t.all/8)
	t.mu.Unlock()
	if t.Total.add(n) || look {
		t.recount() // and act on the result
	}
}

// floods runs under t.mu.
func (t *Session) floods() bool {
	most := t.Group.updateLimit()
	return most > 0 && t.updates > most
}

// cutOff ends a session that has sent too much, once.
func (t *Session) cutOff(reason, flag string) {
	t.mu.Lock()
	again := t.cut
	t.cut = true
	t.mu.Unlock()
	if !again {
		t.Reject(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED,
			fmt.Sprintf("%s: disconnected for %s; correct the neighbor, or increase %s", reason, CutFor, flag))
	}
}

// Bounded reports whether the neighbor's paths need to be counted.
func (t *Session) Bounded() bool {
	return !t.SendOnly && (t.Group.MaxPaths > 0 || t.Total.MaxPaths > 0)
}

// mayExceed reports whether there could be more paths than a limit allows. Routes
// received since the last count may be the same as before. Runs under t.mu.
func (t *Session) mayExceed() bool {
	most, all := int(t.Group.MaxPaths), t.Total.MaxPaths
	return most > 0 && t.counted+t.fresh > most || all > 0 && t.fresh > 0 && t.Total.paths.Load() > int64(all)
}

// awaitCount blocks a neighbor that may exceed a limit until its paths are counted:
// nothing is read from it meanwhile, so that it cannot exceed a limit by much before it
// is disconnected. gobgp has a limit, too, but counts all paths at each update: with many
// paths that takes longer than everything else.
func (t *Session) awaitCount() {
	if !t.Bounded() {
		return
	}
	t.mu.Lock()
	exceeds, counted := t.mayExceed() && t.status.State == Established, t.recounted
	t.mu.Unlock()
	if !exceeds {
		return
	}
	t.recount()
	select {
	case <-counted:
	case <-t.done:
	}
}

func (t *Session) recount() {
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// OverLimit reports whether a session ended because the neighbor sent too much.
func (t *Session) OverLimit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// BoundPaths counts a neighbor's paths on request, until its session ends. It disconnects
// the neighbor if it has too many in one family, or the neighbor with the most if all
// together have too many.
func (t *Session) BoundPaths(ctx context.Context, all func() []*Session) {
	for {
		select {
		case <-t.more:
		case <-t.done:
			return
		case <-ctx.Done():
			return
		}
		if !sleep.About(ctx, countEvery) {
			return
		}
		most := t.count(ctx)
		t.mu.Lock()
		flood := t.floods()
		t.mu.Unlock()
		if t.Group.MaxPaths > 0 && most > int(t.Group.MaxPaths) {
			t.cutOff(fmt.Sprintf("%s sent %d paths, a neighbor of %s may send %d", t.Peer, most, t.Group.Name, t.Group.MaxPaths), "--max-prefixes")
		} else if flood {
			t.cutOff(fmt.Sprintf("%s announced and withdrew more than %d routes within a minute", t.Peer, t.Group.updateLimit()), "--max-prefixes")
		}
		t.Total.enforce(all())
		t.mu.Lock()
		close(t.recounted)
		t.recounted = make(chan struct{})
		t.mu.Unlock()
	}
}

// count counts a neighbor's paths, and returns the larger number of both families.
func (t *Session) count(ctx context.Context) (most int) {
	t.Total.counting.Lock()
	defer t.Total.counting.Unlock()
	if pause := time.Until(t.Total.countNext); pause > 0 && !sleep.About(ctx, pause) {
		return 0
	}
	t.mu.Lock()
	before := t.fresh
	t.mu.Unlock()
	began := time.Now()
	most, all := t.Total.Count(t.Peer)
	t.Total.countNext = time.Now().Add(4 * time.Since(began))
	t.mu.Lock()
	grew := all != t.all
	if !t.status.Closed {
		t.Total.paths.Add(int64(all - t.all - before))
		t.counted, t.all, t.fresh = most, all, t.fresh-before
	}
	t.mu.Unlock()
	if grew { // and may still grow: not everything that was read is already in the table
		t.recount()
	}
	return most
}
