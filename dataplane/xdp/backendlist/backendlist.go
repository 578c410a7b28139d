// Package backendlist stores in the kernel which servers each frontend has: the agent's own record,
// which the next agent reads back (docs/decisions/0045). It does not know what a frontend is, or a
// server, except for their numbers. Its tests that need maps are in dataplane/xdp.
package backendlist

import (
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
)

// Entry is a server of a frontend. Held means that the change that added it is complete.
type Entry struct {
	Server uint32
	bpf.BalancerMember
}

// Lists are the lists of all frontends, for one goroutine.
type Lists struct {
	words *ringmap.Lists
	maps  *bpf.BalancerMaps
	max   int  // how many entries all lists may have
	count int  // how many they have
	keeps bool // a mirror
	list  []uint64
}

// New returns lists that are not read yet. segment is the spec of a part of their memory.
func New(maps *bpf.BalancerMaps, segment *ebpf.MapSpec, max int) *Lists {
	return &Lists{words: ringmap.NewLists(maps.MemberLists, segment), maps: maps, max: max}
}

// Open reads the lists, without a mirror until SyncMirror. It may be called again.
func (l *Lists) Open() error {
	l.count, l.keeps = 0, false
	if err := l.words.Open(l.maps.MemberIndex); err != nil {
		return err
	}
	for id := range uint32(l.words.Len()) {
		l.count += length(l.words.Get(id))
	}
	return nil
}

// Close closes the lists. The kernel keeps them.
func (l *Lists) Close() error {
	if l == nil {
		return nil
	}
	return l.words.Close()
}

// Fits reports whether there is room for so many more entries.
func (l *Lists) Fits(more int) bool { return more == 0 || l.count+more <= l.max }

// Tables returns how full the memory of the lists is, and how many entries they have.
func (l *Lists) Tables() []dataplane.Table {
	return []dataplane.Table{l.words.Table(), {Name: "list-entries", Used: l.count, Size: l.max}}
}

// Of returns a frontend's list.
func (l *Lists) Of(frontend uint32) []Entry { return parse(l.words.Get(frontend)) }

// All returns the lists that are not empty, by frontend.
func (l *Lists) All() map[uint32][]Entry {
	all := map[uint32][]Entry{}
	for id := range uint32(l.words.Len()) {
		if words := l.words.Get(id); len(words) > 0 {
			all[id] = parse(words)
		}
	}
	return all
}

// Set replaces a frontend's list. A process that ends at any point leaves the list before, or this one.
func (l *Lists) Set(frontend uint32, entries []Entry) error {
	l.list = appendWords(l.list[:0], entries)
	if slices.Equal(l.list, l.words.Get(frontend)) {
		return nil
	}
	var was []Entry
	before := length(l.words.Get(frontend))
	if l.keeps {
		was = l.Of(frontend)
	}
	if err := l.words.Set(frontend, l.list); err != nil {
		return err
	}
	l.count += len(entries) - before
	return l.mirror(frontend, was, entries)
}

// A list has a word for each server: its number, and flags. If it has other properties than the
// server before, two words follow: weight and connections, and since.
const (
	serverShift = 32
	flagSame    = 1
	flagHeld    = 2
)

func appendWords(words []uint64, entries []Entry) []uint64 {
	var before bpf.BalancerMember
	for i, e := range entries {
		now := e.BalancerMember
		now.Held = 0
		w := uint64(e.Server)<<serverShift | flagHeld*uint64(e.Held)
		if i > 0 && now == before {
			words = append(words, w|flagSame)
			continue
		}
		words = append(words, w, uint64(e.Weight)|uint64(e.MaxConns)<<32, e.Since)
		before = now
	}
	return words
}

// parse is the inverse of appendWords.
func parse(words []uint64) (entries []Entry) {
	entries = make([]Entry, 0, length(words))
	var e Entry
	for len(words) > 0 {
		w := words[0]
		if words = words[1:]; w&flagSame == 0 && len(words) > 1 {
			e.Weight, e.MaxConns, e.Since = uint32(words[0]), uint32(words[0]>>32), words[1]
			words = words[2:]
		}
		e.Server, e.Held = uint32(w>>serverShift), uint8(w/flagHeld&1)
		entries = append(entries, e)
	}
	return entries
}

// length is the number of entries of a list.
func length(words []uint64) (n int) {
	for ; len(words) > 0; n++ {
		if words[0]&flagSame != 0 || len(words) < 3 {
			words = words[1:]
		} else {
			words = words[3:]
		}
	}
	return n
}
