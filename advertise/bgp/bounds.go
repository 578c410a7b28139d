package bgp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v4/api"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Limits for what one neighbor, and all together, may send: the former contains a
// misconfiguration of one, the latter limits the memory of the process, however many
// neighbors there are.
const (
	// DefaultMaxPrefixes and DefaultMaxRouterPrefixes limit the paths of each family that
	// a load balancer, or a reflector, may send. A single load balancer must not use up
	// the 100,000 next hops that a router programs (package router).
	DefaultMaxPrefixes       = 1 << 15
	DefaultMaxRouterPrefixes = 1 << 20
	// DefaultMaxTotal limits the paths that all neighbors together may send to a
	// reflector; DefaultMaxRouterTotal those to a router, which may receive the same ones
	// from two reflectors.
	DefaultMaxTotal       = 1 << 19
	DefaultMaxRouterTotal = 1 << 20
	// DefaultMaxPeers limits the neighbors of a group with sessions.
	DefaultMaxPeers = 1024

	// countEvery is the minimum interval at which a neighbor's paths are counted. gobgp
	// does nothing else meanwhile, so all counts together may take a fifth of the time.
	countEvery = 20 * time.Millisecond
	// leastGrowth is the number of additional paths after which they are counted again.
	leastGrowth = 64
	// churn is how many times per minute a neighbor may advertise the maximum number of
	// paths, but in any case leastUpdates paths.
	churn        = 4
	leastUpdates = 1000
)

// total limits what all neighbors together may send.
type total struct {
	maxPaths int // of both families; 0: no limit
	// paths is the maximum current number: paths as counted, plus all routes received
	// since.
	paths atomic.Int64

	mu      sync.Mutex
	updates int // since minute
	minute  time.Time
}

// updateLimit returns how many routes per minute a neighbor may advertise or withdraw if
// its paths are limited.
func (g *group) updateLimit() int {
	if g.maxPaths == 0 {
		return 0
	}
	return max(churn*len(families)*int(g.maxPaths), leastUpdates)
}

// tally counts the routes of a received UPDATE: each is work for us and for all routers.
func (t *tap) tally(body []byte) {
	if t.sendOnly {
		return
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	n := countRoutes(body, t.sendsIDs)
	t.fresh += n
	t.limits.paths.Add(int64(n))
	if now := time.Now(); now.Sub(t.minute) > time.Minute {
		t.minute, t.updates = now, 0
	}
	t.updates += n
	look := t.floods() || t.mayExceed() || t.limits.maxPaths > 0 && t.fresh > max(leastGrowth, t.all/8)
	t.mu.Unlock()
	if t.limits.add(n) || look {
		t.recount() // and act on the result
	}
}

// floods runs under t.mu.
func (t *tap) floods() bool {
	most := t.group.updateLimit()
	return most > 0 && t.updates > most
}

// add counts routes of all neighbors, and reports whether there are too many.
func (l *total) add(n int) bool {
	if l.maxPaths == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.minute) > time.Minute {
		l.minute, l.updates = now, 0
	}
	l.updates += n
	return l.tooMany()
}

// tooMany runs under l.mu.
func (l *total) tooMany() bool {
	return l.maxPaths > 0 && l.updates > max(churn*l.maxPaths, leastUpdates)
}

// countRoutes counts the routes that an UPDATE advertises and withdraws. An UPDATE
// without any is also work, and counts as one.
func countRoutes(body []byte, ids map[pkt.Family]bool) int {
	before, attrs, nlri, ok := splitUpdate(body)
	if !ok {
		return 1
	}
	n := countPrefixes(before[2:], ids[pkt.RF_IPv4_UC]) + countPrefixes(nlri, ids[pkt.RF_IPv4_UC])
	all, _ := readAttributes(attrs)
	for _, a := range all {
		skip := 0
		switch {
		case a.typ == pkt.BGP_ATTR_TYPE_MP_REACH_NLRI && len(a.value) > 4:
			skip = 5 + int(a.value[3])
		case a.typ == pkt.BGP_ATTR_TYPE_MP_UNREACH_NLRI:
			skip = 3
		}
		if skip > 0 && skip <= len(a.value) {
			family := pkt.NewFamily(uint16(a.value[0])<<8|uint16(a.value[1]), a.value[2])
			n += countPrefixes(a.value[skip:], ids[family])
		}
	}
	return max(n, 1)
}

// countPrefixes counts prefixes as encoded in an UPDATE (RFC 4271, section 4.3), with or
// without path identifiers (RFC 7911).
func countPrefixes(b []byte, ids bool) (n int) {
	for ; len(b) > 0; n++ {
		at := 0
		if ids {
			at = 4
		}
		if len(b) <= at {
			return n + 1
		}
		b = b[min(at+1+(int(b[at])+7)/8, len(b)):]
	}
	return n
}

// cutOff ends a session that has sent too much, once.
func (t *tap) cutOff(reason, flag string) {
	t.mu.Lock()
	again := t.cut
	t.cut = true
	t.mu.Unlock()
	if !again {
		t.reject(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED,
			fmt.Sprintf("%s: disconnected for %s; correct the neighbor, or increase %s", reason, cutFor, flag))
	}
}

// bounded reports whether the neighbor's paths need to be counted.
func (t *tap) bounded() bool {
	return !t.sendOnly && (t.group.maxPaths > 0 || t.limits.maxPaths > 0)
}

// mayExceed reports whether there could be more paths than a limit allows. Routes
// received since the last count may be the same as before. Runs under t.mu.
func (t *tap) mayExceed() bool {
	most, all := int(t.group.maxPaths), t.limits.maxPaths
	return most > 0 && t.counted+t.fresh > most || all > 0 && t.fresh > 0 && t.limits.paths.Load() > int64(all)
}

// awaitCount blocks a neighbor that may exceed a limit until its paths are counted:
// nothing is read from it meanwhile, so that it cannot exceed a limit by much before it
// is disconnected. gobgp has a limit, too, but counts all paths at each update: with many
// paths that takes longer than everything else.
func (t *tap) awaitCount() {
	if !t.bounded() {
		return
	}
	t.mu.Lock()
	exceeds, counted := t.mayExceed() && t.state == stateEstablished, t.recounted
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

func (t *tap) recount() {
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// boundPaths counts a neighbor's paths on request, until its session ends. It disconnects
// the neighbor if it has too many in one family, or the neighbor with the most if all
// together have too many.
func (e *engine) boundPaths(t *tap) {
	defer e.wg.Done()
	for {
		select {
		case <-t.more:
		case <-t.done:
			return
		case <-e.ctx.Done():
			return
		}
		if !sleepAbout(e.ctx, countEvery) {
			return
		}
		most := e.count(t)
		t.mu.Lock()
		flood := t.floods()
		t.mu.Unlock()
		if t.group.maxPaths > 0 && most > int(t.group.maxPaths) {
			t.cutOff(fmt.Sprintf("%s sent %d paths, a neighbor of %s may send %d", t.peer, most, t.group.name, t.group.maxPaths), "--max-prefixes")
		} else if flood {
			t.cutOff(fmt.Sprintf("%s announced and withdrew more than %d routes within a minute", t.peer, t.group.updateLimit()), "--max-prefixes")
		}
		e.boundTotal()
		t.mu.Lock()
		close(t.recounted)
		t.recounted = make(chan struct{})
		t.mu.Unlock()
	}
}

// count counts a neighbor's paths, and returns the larger number of both families.
func (e *engine) count(t *tap) (most int) {
	e.counting.Lock()
	defer e.counting.Unlock()
	if pause := time.Until(e.countNext); pause > 0 && !sleepAbout(e.ctx, pause) {
		return 0
	}
	t.mu.Lock()
	before := t.fresh
	t.mu.Unlock()
	all, began := 0, time.Now()
	_ = e.server.ListPeer(e.ctx, &api.ListPeerRequest{Address: t.peer.String()}, func(p *api.Peer) {
		for _, f := range p.GetAfiSafis() {
			n := int(f.GetState().GetReceived())
			most, all = max(most, n), all+n
		}
	})
	e.countNext = time.Now().Add(4 * time.Since(began))
	t.mu.Lock()
	grew := all != t.all
	if !t.closed {
		t.limits.paths.Add(int64(all - t.all - before))
		t.counted, t.all, t.fresh = most, all, t.fresh-before
	}
	t.mu.Unlock()
	if grew { // and may still grow: not everything that was read is already in the table
		t.recount()
	}
	return most
}

// boundTotal disconnects the neighbor that sent the most if all neighbors together have
// too many paths, or advertise and withdraw too many routes. Neighbors with few are not
// affected.
func (e *engine) boundTotal() {
	if e.total.maxPaths == 0 {
		return
	}
	sum, largest, busiest := 0, (*tap)(nil), (*tap)(nil)
	all, updates := map[*tap]int{}, map[*tap]int{}
	for _, t := range e.taps() {
		t.mu.Lock()
		if !t.cut && !t.sendOnly {
			all[t], updates[t] = t.all, t.updates
		}
		t.mu.Unlock()
		sum += all[t]
		if all[t] > all[largest] {
			largest = t
		}
		if updates[t] > updates[busiest] {
			busiest = t
		}
	}
	if sum > e.total.maxPaths && largest != nil {
		largest.cutOff(fmt.Sprintf("all neighbors together sent %d paths, more than the limit of %d; %s sent most, %d", sum, e.total.maxPaths, largest.peer, all[largest]), "--max-total-prefixes")
	}
	e.total.mu.Lock()
	busy := e.total.tooMany() && busiest != nil
	if busy {
		e.total.updates -= updates[busiest]
	}
	e.total.mu.Unlock()
	if busy {
		busiest.cutOff(fmt.Sprintf("all neighbors together announced and withdrew more than %d routes within a minute, and %s did most, %d", churn*e.total.maxPaths, busiest.peer, updates[busiest]), "--max-total-prefixes")
	}
}

// overLimit reports whether a session ended because the neighbor sent too much.
func (t *tap) overLimit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}
