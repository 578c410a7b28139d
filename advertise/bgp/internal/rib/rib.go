// Package rib holds routes: those of ours, or those received from neighbors, every path to
// a prefix in order of preference. Subscribers learn which prefixes changed, and look up
// what they are to send.
//
// Who is sent what is decided in package engine. Nothing here blocks, so that a slow
// neighbor delays no other.
package rib

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/core/route"
)

// Source is a session from which paths are received.
type Source struct {
	Address  netip.Addr
	ID       netip.Addr // router ID
	External bool
	Max      int  // paths of each family; one more is the last that is stored; 0: no limit
	gone     bool // its paths are not accepted any more
	paths    map[wire.Key]bool
	four     atomic.Int64
	six      atomic.Int64
}

// Count returns how many paths a source has: the larger number of both families, and the
// sum.
func (s *Source) Count() (most, all int) {
	four, six := int(s.four.Load()), int(s.six.Load())
	return max(four, six), four + six
}

func (s *Source) count(p netip.Prefix, n int64) {
	if wire.Family(p) == pkt.RF_IPv4_UC {
		s.four.Add(n)
	} else {
		s.six.Add(n)
	}
}

// Path is one path to a prefix.
type Path struct {
	Attributes wire.Shared
	From       *Source      // nil for a route of ours
	Route      *route.Route // of ours
	// ID is the path identifier with which it is sent.
	ID  uint32
	key uint32 // the path identifier with which it was received
	age uint64
}

// Subscriber receives the prefixes that changed. It must not block, nor call the table.
type Subscriber interface{ Mark(prefixes []netip.Prefix) }

// Table holds all paths.
type Table struct {
	mu     sync.RWMutex
	routes map[netip.Prefix][]Path
	most   int // the maximum size that routes has had
	age    uint64
	follow map[Subscriber]bool
	paths  atomic.Int64
}

// New returns an empty table.
func New() *Table { return &Table{routes: map[netip.Prefix][]Path{}, follow: map[Subscriber]bool{}} }

// Paths returns the number of paths.
func (t *Table) Paths() int { return int(t.paths.Load()) }

// Subscribe reports all prefixes, and then each change.
func (t *Table) Subscribe(s Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.follow[s] = true
	all := make([]netip.Prefix, 0, len(t.routes))
	for p := range t.routes {
		all = append(all, p)
	}
	s.Mark(all)
}

// Unsubscribe ends the reports.
func (t *Table) Unsubscribe(s Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.follow, s)
}

// changed runs under t.mu.
func (t *Table) changed(prefixes []netip.Prefix) {
	if len(prefixes) == 0 {
		return
	}
	for s := range t.follow {
		s.Mark(prefixes)
	}
}

// Announce adds or replaces a route of ours, with attributes for its lookup.
func (t *Table) Announce(r route.Route, a wire.Shared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(r.Prefix, Path{Attributes: a, Route: &r})
	t.changed([]netip.Prefix{r.Prefix})
}

// Withdraw removes a route of ours.
func (t *Table) Withdraw(p netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.remove(p, nil, 0) {
		t.changed([]netip.Prefix{p})
	}
}

// Update applies an UPDATE from a source, with the attributes that accept returns; false
// removes the routes.
func (t *Table) Update(s *Source, u wire.Update, accept func(wire.Shared) (wire.Shared, bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.gone {
		return
	}
	if s.paths == nil {
		s.paths = map[wire.Key]bool{}
	}
	var prefixes []netip.Prefix
	withdraw := func(keys []wire.Key) {
		for _, k := range keys {
			if s.paths[k] {
				delete(s.paths, k)
				s.count(k.Prefix, -1)
				t.remove(k.Prefix, s, k.ID)
				prefixes = append(prefixes, k.Prefix)
			}
		}
	}
	withdraw(u.Withdrawn)
	for _, a := range u.Announced {
		attrs, ok := accept(a.Attributes)
		if !ok {
			withdraw(a.Keys)
			continue
		}
		for _, k := range a.Keys {
			if most, _ := s.Count(); s.Max > 0 && most > s.Max {
				break
			}
			if !s.paths[k] {
				s.paths[k] = true
				s.count(k.Prefix, 1)
			}
			if t.put(k.Prefix, Path{Attributes: attrs, From: s, key: k.ID}) {
				prefixes = append(prefixes, k.Prefix)
			}
		}
	}
	t.changed(prefixes)
}

// Drop removes all paths of a source, which cannot add any more.
func (t *Table) Drop(s *Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.gone = true
	prefixes := make([]netip.Prefix, 0, len(s.paths))
	for k := range s.paths {
		s.count(k.Prefix, -1)
		t.remove(k.Prefix, s, k.ID)
		prefixes = append(prefixes, k.Prefix)
	}
	s.paths = nil
	t.changed(prefixes)
}

// put adds a path, or replaces the one from the same source, and reports whether anything
// changed; runs under t.mu.
func (t *Table) put(p netip.Prefix, n Path) bool {
	list := t.routes[p]
	t.age++
	n.age, n.ID = t.age, 0
	if i := find(list, n.From, n.key); i >= 0 {
		if n.Route == nil && list[i].Attributes == n.Attributes {
			return false
		}
		n.ID = list[i].ID
		list = slices.Delete(list, i, i+1)
	} else {
		n.ID = unused(list)
		t.paths.Add(1)
	}
	at, _ := slices.BinarySearchFunc(list, n, compare)
	t.routes[p] = slices.Insert(list, at, n)
	t.most = max(t.most, len(t.routes))
	return true
}

// remove runs under t.mu.
func (t *Table) remove(p netip.Prefix, s *Source, key uint32) bool {
	list := t.routes[p]
	i := find(list, s, key)
	if i < 0 {
		return false
	}
	t.paths.Add(-1)
	if len(list) > 1 {
		t.routes[p] = slices.Delete(list, i, i+1)
		return true
	}
	delete(t.routes, p)
	t.routes, t.most = Shrunk(t.routes, t.most)
	return true
}

func find(list []Path, s *Source, key uint32) int {
	return slices.IndexFunc(list, func(p Path) bool { return p.From == s && p.key == key })
}

// unused returns the lowest path identifier that no path has.
func unused(list []Path) uint32 {
	taken := make([]bool, len(list)+2)
	for _, p := range list {
		if int(p.ID) < len(taken) {
			taken[p.ID] = true
		}
	}
	id := uint32(1)
	for taken[id] {
		id++
	}
	return id
}

// Look calls look with the paths to each of some prefixes, best first, which are valid
// only during the call.
func (t *Table) Look(prefixes []netip.Prefix, look func(netip.Prefix, []Path)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range prefixes {
		look(p, t.routes[p])
	}
}

// Each calls look with all prefixes.
func (t *Table) Each(look func(netip.Prefix, []Path)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for p, list := range t.routes {
		look(p, list)
	}
}

// leastShrunk is the map size above which shrinking is worthwhile.
const leastShrunk = 4096

// Shrunk returns a map without the memory of what it once had, at most most entries: a map
// never shrinks.
func Shrunk[K comparable, V any](m map[K]V, most int) (map[K]V, int) {
	if most <= leastShrunk || len(m) >= most/8 {
		return m, most
	}
	less := make(map[K]V, len(m))
	for k, v := range m {
		less[k] = v
	}
	return less, len(less)
}
