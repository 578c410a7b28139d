package rib

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unique"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

var prefix = netip.MustParsePrefix("10.1.1.0/24")

func source(i int, external bool) *Source {
	a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	return &Source{Address: a, ID: a, External: external}
}

func all(a wire.Shared) (wire.Shared, bool) { return a, true }

func announce(a wire.Attributes, keys ...wire.Key) wire.Update {
	return wire.Update{Announced: []wire.Announcement{{Attributes: unique.Make(a), Keys: keys}}}
}

// The order of RFC 4271, section 9.1.2.2: each path is worse than the previous one, and only
// those that differ in nothing but their neighbor share the traffic.
func TestOrderOfPaths(t *testing.T) {
	as := func(n ...byte) string {
		path := []byte{2, byte(len(n))}
		for _, as := range n {
			path = append(path, 0, 0, 0, as)
		}
		return string(path)
	}
	for _, c := range []struct {
		what     string
		external [2]bool
		paths    [2]wire.Attributes
		shared   bool
	}{
		{"preference", [2]bool{}, [2]wire.Attributes{{LocalPref: 200, HasPref: true, ASPath: as(1, 2)}, {}}, false},
		{"the default preference", [2]bool{}, [2]wire.Attributes{{}, {LocalPref: 1, HasPref: true}}, false},
		{"path length", [2]bool{}, [2]wire.Attributes{{ASPath: as(1), Origin: 2}, {ASPath: as(1, 1)}}, false},
		{"origin", [2]bool{}, [2]wire.Attributes{{MED: 9}, {Origin: 1}}, false},
		{"MED", [2]bool{}, [2]wire.Attributes{{MED: 1}, {MED: 2}}, false},
		{"another AS first", [2]bool{true, false}, [2]wire.Attributes{{ASPath: as(1)}, {ASPath: as(1)}}, false},
		{"MEDs of different ASes", [2]bool{true, true}, [2]wire.Attributes{{ASPath: as(1), MED: 9}, {ASPath: as(2), MED: 3}}, false},
		{"the older of other ASes", [2]bool{true, true}, [2]wire.Attributes{{ASPath: as(9)}, {ASPath: as(2)}}, true},
		{"router ID", [2]bool{}, [2]wire.Attributes{{Communities: "12"}, {}}, true},
	} {
		table := New()
		for i, a := range c.paths {
			a.NextHop = netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
			table.Update(source(i, c.external[i]), announce(a, wire.Key{Prefix: prefix}), all)
		}
		table.Look([]netip.Prefix{prefix}, func(_ netip.Prefix, list []Path) {
			if len(list) != 2 || list[0].From.Address.As4()[3] != 0 || (len(Multipath(list)) == 2) != c.shared {
				t.Errorf("%s: %+v, shared %t", c.what, list, c.shared)
			}
		})
	}
}

// noted records which prefixes changed.
type noted struct{ prefixes []netip.Prefix }

func (n *noted) Mark(prefixes []netip.Prefix) { n.prefixes = append(n.prefixes, prefixes...) }

// Random changes leave the same as a plain list, counts and path identifiers are correct, and
// each change is reported.
func TestTableMatchesAList(t *testing.T) {
	type entry struct {
		s *Source
		k wire.Key
	}
	random, table, list := rand.New(rand.NewPCG(1, 2)), New(), map[entry]wire.Shared{}
	var sources []*Source
	for i := range 5 {
		sources = append(sources, source(i, false))
	}
	for range 3000 {
		s := sources[random.IntN(len(sources))]
		e := entry{s, wire.Key{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{40, 0, 0, byte(random.IntN(9))}), 32), ID: uint32(random.IntN(3))}}
		a := wire.Attributes{NextHop: s.Address, MED: random.Uint32N(3)}
		var news noted
		table.Subscribe(&news)
		news.prefixes = nil
		was, had := list[e]
		switch random.IntN(20) {
		case 0:
			table.Drop(s)
			for o := range list {
				if o.s == s {
					delete(list, o)
				}
			}
			s.gone = false // comes back
		case 1, 2, 3, 4, 5, 6, 7:
			table.Update(s, wire.Update{Withdrawn: []wire.Key{e.k}}, all)
			delete(list, e)
			if had != slices.Contains(news.prefixes, e.k.Prefix) {
				t.Fatalf("withdrawing %v, which there was (%t), reports %v", e.k, had, news.prefixes)
			}
		default:
			table.Update(s, announce(a, e.k), all)
			list[e] = unique.Make(a)
			if (was != list[e]) != slices.Contains(news.prefixes, e.k.Prefix) {
				t.Fatalf("announcing %v reports %v", e.k, news.prefixes)
			}
		}
		table.Unsubscribe(&news)
		got := map[entry]wire.Shared{}
		table.Each(func(p netip.Prefix, paths []Path) {
			ids := map[uint32]bool{}
			for _, path := range paths {
				got[entry{path.From, wire.Key{Prefix: p, ID: path.key}}] = path.Attributes
				ids[path.ID] = true
			}
			if len(ids) != len(paths) || ids[0] || !slices.IsSortedFunc(paths, compare) {
				t.Fatalf("paths of %s: %+v", p, paths)
			}
		})
		if fmt.Sprint(len(got), table.Paths()) != fmt.Sprint(len(list), len(list)) {
			t.Fatalf("%d paths, %d counted, want %d", len(got), table.Paths(), len(list))
		}
		for e, a := range list {
			if got[e] != a {
				t.Fatalf("%v: %+v, want %+v", e.k, got[e].Value(), a.Value())
			}
		}
		for _, s := range sources {
			if _, n := s.Count(); n != len(s.paths) {
				t.Fatalf("%s has %d paths, counted %d", s.Address, len(s.paths), n)
			}
		}
	}
}

// A source that is gone adds nothing, or its paths would stay forever.
func TestLateUpdate(t *testing.T) {
	table, s := New(), source(1, false)
	table.Drop(s)
	table.Update(s, announce(wire.Attributes{}, wire.Key{Prefix: prefix}), all)
	if table.Paths() != 0 {
		t.Error("it has a path")
	}
}
