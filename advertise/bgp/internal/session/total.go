package session

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Total limits what all neighbors together may send.
type Total struct {
	MaxPaths int // of both families; 0: no limit
	// Count returns how many paths a neighbor has sent: the larger number of both
	// families, and the sum.
	Count func(peer netip.Addr) (most, all int)
	// paths is the maximum current number: paths as counted, plus all routes received
	// since.
	paths atomic.Int64

	// counting is held while paths are counted. The next count starts at countNext.
	counting  sync.Mutex
	countNext time.Time

	mu      sync.Mutex
	updates int // since minute
	minute  time.Time
}

// add counts routes of all neighbors, and reports whether there are too many.
func (l *Total) add(n int) bool {
	if l.MaxPaths == 0 {
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
func (l *Total) tooMany() bool {
	return l.MaxPaths > 0 && l.updates > max(churn*l.MaxPaths, leastUpdates)
}

// enforce disconnects the neighbor that sent the most if all neighbors together have
// too many paths, or advertise and withdraw too many routes. Neighbors with few are not
// affected.
func (l *Total) enforce(sessions []*Session) {
	if l.MaxPaths == 0 {
		return
	}
	sum, largest, busiest := 0, (*Session)(nil), (*Session)(nil)
	all, updates := map[*Session]int{}, map[*Session]int{}
	for _, t := range sessions {
		t.mu.Lock()
		if !t.cut && !t.SendOnly {
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
