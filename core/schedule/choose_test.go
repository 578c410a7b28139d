package schedule

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
)

// farm is a set of backends, numbered from 1, with their connections.
type farm struct {
	servers   []Server
	slots     []ring.Slot
	scheduler service.Scheduler
	chooser   Chooser
	flows     int
}

func newFarm(t *testing.T, scheduler service.Scheduler, servers ...Server) *farm {
	t.Helper()
	f := &farm{servers: servers, scheduler: scheduler}
	var members []ring.Member
	for i, s := range servers {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 0, byte(i + 1)}), 80)
		members = append(members, ring.Member{ID: ring.ID(i + 1), Addr: addr, Weight: s.Weight})
	}
	var err error
	if f.slots, err = ring.For(scheduler, nil, 1021, members); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *farm) look(id ring.ID) Server { return f.servers[id-1] }

// open opens a flow and returns its backend.
func (f *farm) open() ring.ID {
	f.flows++
	hash := Hash(flow(fmt.Sprintf("192.168.%d.2:%d", f.flows>>14, 1024+f.flows&16383), "10.1.1.1", 80, service.TCP))
	id := f.chooser.Choose(f.scheduler, f.slots, hash, f.look)
	if id != 0 {
		f.servers[id-1].Conns++
	}
	return id
}

func weights(ws ...uint32) (servers []Server) {
	for _, w := range ws {
		servers = append(servers, Server{Weight: w})
	}
	return servers
}

// byWeight lists the schedulers that share flows by weight, if there are many lasting
// flows.
var byWeight = []service.Scheduler{service.Maglev, service.WeightedRoundRobin, service.WeightedLeastConn, service.PowerOfTwo}

func TestSharesByWeight(t *testing.T) {
	const flows = 20000
	for _, scheduler := range service.Schedulers {
		if scheduler == service.SourceHash || scheduler == service.DestinationHash {
			continue // like maglev, but with a different hash
		}
		f := newFarm(t, scheduler, weights(1, 4, 0, 2, 1)...)
		for range flows {
			f.open()
		}
		for i, s := range f.servers {
			want := flows / 4
			if slices.Contains(byWeight, scheduler) {
				want = flows * int(s.Weight) / 8
			}
			if s.Weight == 0 {
				want = 0
			}
			if got := int(s.Conns); got < want*94/100 || got > want*106/100 {
				t.Errorf("%s: server %d of weight %d has %d flows, want about %d", scheduler, i+1, s.Weight, got, want)
			}
		}
	}
}

// Whatever the backends' connections, lc and wlc choose the backend that a search by
// fractions finds.
func TestLeastConnTakesTheLeast(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	for range 3000 {
		servers := make([]Server, 1+rng.IntN(7))
		for i := range servers {
			servers[i] = Server{Weight: rng.Uint32N(4), Conns: rng.Uint32N(9), MaxConns: rng.Uint32N(2) * rng.Uint32N(9)}
			servers[i].Ended = rng.Uint32N(servers[i].Conns + 1)
		}
		for _, scheduler := range []service.Scheduler{service.LeastConn, service.WeightedLeastConn} {
			want, least := ring.ID(0), 1e9
			for i, s := range servers {
				load := float64(s.Conns-s.Ended) + float64(s.Ended)/256
				if scheduler == service.WeightedLeastConn {
					load /= float64(s.Weight)
				}
				full := s.MaxConns != 0 && s.Conns >= s.MaxConns
				if s.Weight > 0 && !full && load < least {
					want, least = ring.ID(i+1), load
				}
			}
			if got := newFarm(t, scheduler, slices.Clone(servers)...).open(); got != want {
				t.Fatalf("%s of %+v: %d, want %d", scheduler, servers, got, want)
			}
		}
	}
}

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		scheduler service.Scheduler
		servers   []Server
		want      []ring.ID
	}{
		{service.RoundRobin, nil, []ring.ID{0, 0}},
		{service.RoundRobin, weights(1, 5, 0, 1), []ring.ID{1, 2, 4, 1, 2, 4}},
		{service.RoundRobin, []Server{{1, 0, 0, 0}, {1, 3, 3, 0}, {1, 0, 1, 0}}, []ring.ID{1, 3, 1, 1, 1}},
		{service.WeightedRoundRobin, weights(4, 8, 2), []ring.ID{2, 2, 1, 2, 1, 2, 3, 2, 2}},
	} {
		f := newFarm(t, c.scheduler, c.servers...)
		var got []ring.ID
		for range c.want {
			got = append(got, f.open())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s of %+v: %v, want %v", c.scheduler, c.servers, got, c.want)
		}
	}
}

// Changes of backends do not restart the round, as they do in IPVS: every backend gets
// flows, even if there is a change before each of them.
func TestTurnsContinueAfterChanges(t *testing.T) {
	f := newFarm(t, service.WeightedRoundRobin, weights(1, 1, 1)...)
	for i := range 60 {
		f.slots = newFarm(t, f.scheduler, weights(1, 1, uint32(1+i%2))...).slots
		f.open()
	}
	for i, s := range f.servers {
		if s.Conns < 10 {
			t.Errorf("server %d has %d of 60 flows", i+1, s.Conns)
		}
	}
}

// Every scheduler fills all backends and then returns none.
func TestMaxConns(t *testing.T) {
	for _, scheduler := range service.Schedulers {
		f := newFarm(t, scheduler, Server{1, 0, 40, 0}, Server{2, 0, 50, 0}, Server{1, 0, 60, 0})
		for range 150 {
			f.open()
		}
		if f.servers[0].Conns != 40 || f.servers[1].Conns != 50 || f.servers[2].Conns != 60 || f.open() != 0 {
			t.Errorf("%s: %+v", scheduler, f.servers)
		}
	}
}

// p2c compares two different backends, and the less loaded one wins.
func TestPowerOfTwo(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	f := newFarm(t, service.PowerOfTwo, weights(1, 1, 1, 1, 1, 1)...)
	seen := map[ring.ID]int{}
	for range 6000 {
		asked := map[ring.ID]bool{}
		for i := range f.servers {
			f.servers[i].Conns = rng.Uint32N(10)
		}
		got := f.chooser.Choose(service.PowerOfTwo, f.slots, rng.Uint32(), func(id ring.ID) Server {
			asked[id] = true
			return f.look(id)
		})
		if len(asked) != 2 || !asked[got] {
			t.Fatalf("took %d, asked %v", got, asked)
		}
		for id := range asked {
			seen[id]++
			if f.look(id).Conns < f.look(got).Conns {
				t.Fatalf("took %d of %v: %+v", got, asked, f.servers)
			}
		}
	}
	for id, n := range seen {
		if n < 1800 || n > 2200 {
			t.Errorf("server %d was looked at %d times, want about 2000", id, n)
		}
	}
}

// With purely random flows, the fullest of 100 backends would have about 50 flows more
// than its share of 400. With the choice of two, the excess is only a handful.
func TestPowerOfTwoBalances(t *testing.T) {
	servers := make([]Server, 100)
	for i := range servers {
		servers[i].Weight = 1
	}
	f := newFarm(t, service.PowerOfTwo, servers...)
	for range 40000 {
		f.open()
	}
	for i, s := range f.servers {
		if s.Conns < 380 || s.Conns > 410 {
			t.Errorf("server %d has %d flows, want about 400", i+1, s.Conns)
		}
	}
}

func TestHashBy(t *testing.T) {
	a := flow("192.168.0.2:40000", "10.1.1.1", 80, service.TCP)
	b := flow("192.168.0.2:40001", "10.1.1.2", 81, service.UDP)
	c := flow("192.168.0.3:40000", "10.1.1.1", 82, service.SCTP)
	for by, same := range map[By][2]bool{ByFlow: {}, ByClient: {true, false}, ByVIP: {false, true}} {
		if got := [2]bool{HashBy(by, a) == HashBy(by, b), HashBy(by, a) == HashBy(by, c)}; got != same {
			t.Errorf("%d: %v, want %v", by, got, same)
		}
	}
}

func TestAffinity(t *testing.T) {
	var a Affinity
	start := time.Unix(1000, 0)
	one, two := netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("2001:db8::2")
	must := func(client netip.Addr, after time.Duration, want ring.ID) {
		t.Helper()
		id, ok := a.Server(client, time.Minute, start.Add(after))
		if id != want || ok != (want != 0) {
			t.Errorf("%s after %s: %d, %v; want %d", client, after, id, ok, want)
		}
	}
	must(one, 0, 0)
	a.Saw(one, 7, start)
	must(two, 0, 0)
	must(one, time.Minute, 7)
	a.Saw(one, 7, start.Add(30*time.Second))
	a.Saw(two, 8, start.Add(30*time.Second))
	must(one, 90*time.Second, 7)
	must(one, 91*time.Second, 0)
	must(one, 0, 0) // expired entries are forgotten
	a.Keep(func(id ring.ID) bool { return id == 7 })
	must(two, 31*time.Second, 0)
}
