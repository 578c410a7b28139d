package session

import (
	"fmt"
	"sync"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Limits for what one neighbor, and all together, may send: the former contains a
// misconfiguration of one, the latter limits the memory of the process, however many
// neighbors there are.
const (
	// CutFor is how long a disconnected neighbor must stay away.
	CutFor = time.Minute

	// churn is how many times per minute a neighbor may advertise the maximum number of
	// paths, but in any case leastUpdates paths.
	churn        = 4
	leastUpdates = 1000
	// families is the number of address families in a session.
	families = 2
)

// Total limits what all neighbors together may send.
type Total struct {
	MaxPaths int // of both families; 0: no limit

	mu      sync.Mutex
	updates int // since minute
	minute  time.Time
}

// bound disconnects the neighbor if it has too many paths in one family, or changed too
// many, or the neighbor with the most if all together have too many. n routes were
// received: each is work for us and for all routers.
func (t *Session) bound(n int) {
	t.mu.Lock()
	if now := time.Now(); now.Sub(t.minute) > time.Minute {
		t.minute, t.updates = now, 0
	}
	t.updates += n
	updates := t.updates
	t.mu.Unlock()
	paths, _ := t.Source.Count()
	if most := int(t.Group.MaxPaths); most > 0 && paths > most {
		t.cutOff(fmt.Sprintf("%s sent %d paths, a neighbor of %s may send %d", t.Peer, paths, t.Group.Name, most), "--max-prefixes")
	} else if most := t.Group.updateLimit(); most > 0 && updates > most {
		t.cutOff(fmt.Sprintf("%s announced and withdrew more than %d routes within a minute", t.Peer, most), "--max-prefixes")
	}
	if t.Total.add(n) || t.Total.MaxPaths > 0 && t.Table.Paths() > t.Total.MaxPaths {
		t.Total.enforce(t.All())
	}
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

// OverLimit reports whether a session ended because the neighbor sent too much.
func (t *Session) OverLimit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// add counts routes of all neighbors, and reports whether there are too many.
func (l *Total) add(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.minute) > time.Minute {
		l.minute, l.updates = now, 0
	}
	l.updates += n
	return l.tooMany()
}

// tooMany runs under l.mu.
func (l *Total) tooMany() bool {
	return l.MaxPaths > 0 && l.updates > max(churn*l.MaxPaths, leastUpdates)
}

// enforce disconnects the neighbor that sent the most if all neighbors together have
// too many paths, or advertise and withdraw too many routes. Neighbors with few are not
// affected.
func (l *Total) enforce(sessions []*Session) {
	sum, largest, busiest := 0, (*Session)(nil), (*Session)(nil)
	all, updates := map[*Session]int{}, map[*Session]int{}
	for _, t := range sessions {
		t.mu.Lock()
		if !t.cut && !t.SendOnly {
			updates[t] = t.updates
			_, all[t] = t.Source.Count()
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
	if sum > l.MaxPaths && largest != nil {
		largest.cutOff(fmt.Sprintf("all neighbors together sent %d paths, more than the limit of %d; %s sent most, %d", sum, l.MaxPaths, largest.Peer, all[largest]), "--max-total-prefixes")
	}
	l.mu.Lock()
	busy := l.tooMany() && busiest != nil
	if busy {
		l.updates -= updates[busiest]
	}
	l.mu.Unlock()
	if busy {
		busiest.cutOff(fmt.Sprintf("all neighbors together announced and withdrew more than %d routes within a minute, and %s did most, %d", churn*l.MaxPaths, busiest.Peer, updates[busiest]), "--max-total-prefixes")
	}
}
