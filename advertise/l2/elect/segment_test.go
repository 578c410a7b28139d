package elect

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise/l2/wire"
)

const (
	interval = 300 * time.Millisecond
	hold     = 900 * time.Millisecond
	delay    = time.Millisecond // of every transmission
)

// segment is an Ethernet segment in virtual time: cores, messages in transit between
// them, and hosts that are not members.
type segment struct {
	t     *testing.T
	rand  *rand.Rand
	now   time.Time
	nodes map[netip.Addr]*node
	// side is the side of a partition that a node is on; hosts are on side 0.
	side  map[netip.Addr]int
	hosts map[netip.Addr]wire.MAC
	// deaf nodes receive nothing.
	deaf  map[netip.Addr]bool
	loss  float64
	onWay []delivery
	// announced counts announcements, and both is called whenever two nodes on one side
	// own an address.
	announced map[netip.Addr]int
	both      func(a netip.Addr)
	recorded  []string // types of events
}

type node struct {
	*Core
	mac wire.MAC
}

type delivery struct {
	at time.Time
	do func()
}

func newSegment(t *testing.T, seed uint64) *segment {
	return &segment{
		t: t, rand: rand.New(rand.NewPCG(seed, seed)), now: time.Unix(1e9, 0), nodes: map[netip.Addr]*node{},
		side: map[netip.Addr]int{}, hosts: map[netip.Addr]wire.MAC{}, deaf: map[netip.Addr]bool{}, announced: map[netip.Addr]int{}, both: func(netip.Addr) {},
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func at(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }

// vips returns addresses of both families.
func vips(n int) (all []netip.Addr) {
	for i := range n {
		if i%2 == 0 {
			all = append(all, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
		} else {
			all = append(all, addr(fmt.Sprintf("fd00:1::%x", i)))
		}
	}
	return all
}

// start adds a member that offers addresses, or restarts it.
func (s *segment) start(i, of int, addresses []netip.Addr) *node {
	n := &node{mac: wire.MAC{2, 0, 0, 0, 0, byte(i)}, Core: New(Config{Self: at(i), Interval: interval, Hold: hold, Random: s.rand.Uint64})}
	var all []netip.Addr
	for m := range of {
		all = append(all, at(m+1))
	}
	s.nodes[n.Self] = n
	n.SetMembers(s.now, all)
	n.SetLink(s.now, true, []wire.MAC{n.mac})
	n.SetAddresses(s.now, addresses)
	s.carry(n)
	return n
}

func (s *segment) send(from, to netip.Addr, do func()) {
	if s.side[from] != s.side[to] || s.deaf[to] || s.rand.Float64() < s.loss {
		return
	}
	s.onWay = append(s.onWay, delivery{s.now.Add(delay), do})
}

// carry delivers a node's actions to the others.
func (s *segment) carry(n *node) {
	out := n.Take()
	for _, h := range out.Hellos {
		h := h
		s.send(n.Self, h.To, func() {
			if to := s.nodes[h.To]; to != nil {
				b := h.Marshal(nil, n.Self, h.To)
				hello, err := wire.ParseHello(b, nil, n.Self, h.To)
				if err != nil {
					s.t.Fatalf("%s cannot read its hello: %v", h.To, err)
				}
				_ = to.Receive(s.now, n.Self, hello)
				s.carry(to)
			}
		})
	}
	for _, a := range out.Probe {
		s.deliver(n, a, (*Core).Wanted)
		if mac, ok := s.hosts[a]; ok {
			s.send(at(0), n.Self, func() { n.Used(s.now, a, mac); s.carry(n) })
		}
		for _, o := range s.nodes {
			if o != n && o.Owns(a) {
				s.send(o.Self, n.Self, func() { n.Used(s.now, a, o.mac); s.carry(n) })
			}
		}
	}
	for _, a := range out.Announce {
		s.announced[a]++
		s.deliver(n, a, (*Core).Used)
	}
	for _, e := range out.Events {
		s.recorded = append(s.recorded, string(e.Type))
	}
	if len(out.Events) > 0 {
		s.check()
	}
}

// deliver delivers a frame about an address to all others.
func (s *segment) deliver(n *node, a netip.Addr, how func(*Core, time.Time, netip.Addr, wire.MAC)) {
	for _, o := range s.nodes {
		if o != n {
			s.send(n.Self, o.Self, func() { how(o.Core, s.now, a, n.mac); s.carry(o) })
		}
	}
}

func (s *segment) check() {
	owner := map[[2]any]bool{}
	for _, n := range s.nodes {
		for a := range n.vips {
			if key := [2]any{s.side[n.Self], a}; n.Owns(a) {
				if owner[key] {
					s.both(a)
				}
				owner[key] = true
			}
		}
	}
}

// run advances time.
func (s *segment) run(d time.Duration) {
	for end := s.now.Add(d); ; {
		next := end
		for _, w := range s.onWay {
			next = earlier(next, w.at)
		}
		for _, n := range s.nodes {
			if t := n.Next(); !t.IsZero() {
				next = earlier(next, t)
			}
		}
		s.now = latest(s.now, next)
		due := s.onWay[:0:0]
		rest := s.onWay[:0:0]
		for _, w := range s.onWay {
			if w.at.After(s.now) {
				rest = append(rest, w)
			} else {
				due = append(due, w)
			}
		}
		s.onWay = rest
		for _, w := range due {
			w.do()
		}
		for _, n := range s.sorted() {
			n.Tick(s.now)
			s.carry(n)
		}
		if len(due) == 0 && !s.now.Before(end) {
			return
		}
	}
}

func (s *segment) sorted() (all []*node) {
	for _, n := range s.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *node) int { return a.Self.Compare(b.Self) })
	return all
}

// owners returns who answers for each address on a side; two are a failure.
func (s *segment) owners(side int) map[netip.Addr]netip.Addr {
	s.t.Helper()
	all := map[netip.Addr]netip.Addr{}
	for _, n := range s.sorted() {
		if s.side[n.Self] != side {
			continue
		}
		for a := range n.vips {
			if !n.Owns(a) {
				continue
			}
			if first, ok := all[a]; ok {
				s.t.Errorf("%s is answered for by %s and %s", a, first, n.Self)
			}
			all[a] = n.Self
		}
	}
	return all
}

// slowTwin returns who should answer: of those on a side that offer an address, the one
// with the highest rank.
func (s *segment) slowTwin(side int) map[netip.Addr]netip.Addr {
	all := map[netip.Addr]netip.Addr{}
	for _, n := range s.sorted() {
		for a := range n.vips {
			if best, ok := all[a]; s.side[n.Self] == side && (!ok || rank(a, n.Self) > rank(a, best)) {
				all[a] = n.Self
			}
		}
	}
	return all
}
