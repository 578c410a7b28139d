package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// move contains the changes of servers at one time, and of one load balancer.
type move struct {
	at                 float64 // in seconds
	add, drain, remove []ring.ID
	balancer           bool // replace the oldest load balancer
}

// scene is a service before any move.
type scene struct {
	servers, balancers, slots, buckets int
	rate                               float64 // connections per second
	mean                               float64 // mean lifetime, in seconds
	lives                              follow.Lives
	// forgetful load balancers do not get the servers' timestamps.
	forgetful bool
	seed      uint64
}

func newScene(r *experiments.Run) scene {
	return scene{
		servers: r.Int("servers"), balancers: r.Int("balancers"), slots: r.Int("slots"), buckets: 512, rate: r.Param("rate"), mean: r.Param("life"),
		lives: follow.NewLives(r.Param("life"), r.Param("spread")), seed: follow.Mix(uint64(r.Seed)),
	}
}

// every is the interval at which the servers' load is sampled, in seconds.
const every = 5

// played is the result of a series of moves.
type played struct {
	// Every followed connection is open at the end, closed meanwhile, or lost with its
	// server.
	followed, open, closed, lost int
	broken                       [follow.Ways]int
	// fullest is the largest number of connections of an active server at any time,
	// divided by its share if the initial number of servers were active. emptiest is the
	// smallest one, divided by the share of the currently active servers.
	fullest, emptiest float64
	// even is the time at which the emptiest server reached 80 % of its share, in seconds
	// after servers were last added, or -1 if it did not before the end.
	even  float64
	loads []experiments.XY // of the fullest server over time
}

// play is a scene in progress.
type play struct {
	scene
	state   follow.State
	hops    []follow.Balancer
	members []ring.Member
	conns   []follow.Conn
	now     float64
	came    float64 // time at which servers were last added
	random  *stochastic.Stream
	played
}

// play makes the moves, which must be sorted by time, and continues until end.
func (s scene) play(ctx context.Context, moves []move, end float64) (*played, error) {
	p := &play{scene: s, members: follow.Members(0, s.servers), random: follow.NewStream(s.seed, 0)}
	p.emptiest, p.even = 1, -1
	var err error
	if p.state.Farm, err = follow.NewFarm(s.slots, ring.NewBuilder(64*s.slots), p.members); err != nil {
		return nil, err
	}
	for b := range s.balancers {
		p.hops = append(p.hops, follow.Balancer(b+1))
	}
	p.state.Groups = []follow.Group{follow.NewGroup(p.hops, s.buckets)}
	p.state.Began = make([]int, s.balancers+1)
	for range int(s.rate * s.mean) {
		life, over := s.lives.Met(p.random)
		p.open(-over, life-over)
	}
	for look := 0.0; look <= end; look += every {
		for len(moves) > 0 && moves[0].at <= look {
			p.advance(moves[0].at)
			if err := p.move(&moves[0]); err != nil {
				return nil, err
			}
			moves = moves[1:]
		}
		p.advance(look)
		p.look()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	p.played.open = len(p.conns)
	p.settle(p.conns)
	if p.followed != p.played.open+p.closed+p.lost {
		return nil, fmt.Errorf("of %d connections %d are open, %d closed, %d lost: some are nowhere", p.followed, p.played.open, p.closed, p.lost)
	}
	return &p.played, nil
}

// open opens a connection.
func (p *play) open(born, ends float64) {
	p.conns = append(p.conns, p.state.Open(0, p.seed+uint64(p.followed), born, ends))
	p.followed++
}

// advance advances the time, while connections open and close.
func (p *play) advance(to float64) {
	span := to - p.now
	for range int(p.rate*to) - int(p.rate*p.now) {
		born := p.now + span*p.random.Float()
		p.open(born, born+p.lives.New(p.random))
	}
	p.now = to
	p.keep(func(c *follow.Conn) bool {
		if c.Ends <= to {
			p.closed++
			return false
		}
		return true
	})
}

// keep removes the connections for which stays returns false.
func (p *play) keep(stays func(*follow.Conn) bool) {
	left := p.conns[:0]
	for i := range p.conns {
		if c := p.conns[i]; stays(&c) {
			left = append(left, c)
		} else {
			p.settle([]follow.Conn{c})
		}
	}
	p.conns = left
}

// settle counts the ways with which removed connections had broken.
func (p *play) settle(conns []follow.Conn) {
	for i := range conns {
		for way := range follow.Ways {
			if conns[i].Broken&follow.Bit(follow.Resilient, way) != 0 {
				p.broken[way]++
			}
		}
	}
}

// move applies one move, and sends a packet on every connection.
func (p *play) move(m *move) error {
	now := follow.Moment(p.now)
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(one ring.Member) bool { return slices.Contains(m.remove, one.ID) })
	for i := range p.members {
		if one := &p.members[i]; slices.Contains(m.drain, one.ID) {
			one.Weight = 0
			if !p.forgetful {
				one.Drained = now
			}
		}
	}
	for _, id := range m.add {
		one := follow.NewMember(0, id, now)
		if p.forgetful {
			one.Since = time.Time{}
		}
		p.members = append(p.members, one)
		p.came, p.even = p.now, -1
	}
	if m.balancer {
		p.hops = append(slices.Clone(p.hops[1:]), follow.Balancer(len(p.state.Began)))
		p.state.Began = append(p.state.Began, len(p.state.Began))
		p.state.Groups = []follow.Group{p.state.Groups[0].With(p.hops)}
	}
	var began []int
	for _, b := range p.hops {
		began = append(began, p.state.Began[b])
	}
	slices.Sort(began)
	if err := p.state.Farm.Change(p.members, slices.Compact(began)); err != nil {
		return err
	}
	p.keep(func(c *follow.Conn) bool {
		served := p.state.Step(c)
		if !served {
			p.lost++
		}
		return served
	})
	return nil
}

// look records how far the load is from fair.
func (p *play) look() {
	has := map[ring.ID]int{}
	for i := range p.conns {
		has[p.conns[i].Server]++
	}
	most, least, serving := 0.0, len(p.conns), 0
	for _, m := range p.members {
		if m.Weight > 0 {
			most, least = max(most, float64(has[m.ID])), min(least, has[m.ID])
			serving++
		}
	}
	open := float64(len(p.conns))
	most *= float64(p.servers) / open
	emptiest := float64(least*serving) / open
	p.fullest, p.emptiest = max(p.fullest, most), min(p.emptiest, emptiest)
	if p.even < 0 && emptiest >= 0.8 {
		p.even = p.now - p.came
	}
	p.loads = append(p.loads, experiments.XY{X: p.now, Y: most})
}

// inOrder sorts moves by time. If balancersEvery is not 0, load balancers are replaced
// meanwhile, one at a time.
func inOrder(moves []move, balancersEvery, until float64) []move {
	if balancersEvery > 0 {
		for t := balancersEvery / 2; t < until; t += balancersEvery {
			moves = append(moves, move{at: t, balancer: true})
		}
	}
	slices.SortStableFunc(moves, func(a, b move) int { return cmp.Compare(a.at, b.at) })
	return moves
}

// numbers returns n consecutive server IDs.
func numbers(from, n int) (ids []ring.ID) {
	for i := range n {
		ids = append(ids, ring.ID(from+i))
	}
	return ids
}

// rolling replaces all servers in batches, one every pace seconds. With surge, the new
// servers are added before the old ones drain. Otherwise they are added half a pace
// later. Servers end drain seconds after they started to drain.
func rolling(servers, batch int, drain, pace float64, surge bool) (moves []move, last float64) {
	for i := 0; i < servers; i += batch {
		n := min(batch, servers-i)
		t := float64(i/batch) * pace
		m := move{at: t, drain: numbers(i+1, n)}
		last = t
		if surge {
			m.add = numbers(servers+i+1, n)
		} else {
			last = t + pace/2
			moves = append(moves, move{at: last, add: numbers(servers+i+1, n)})
		}
		moves = append(moves, m, move{at: t + drain, remove: numbers(i+1, n)})
	}
	return moves, last
}

// storm alternately adds and drains some servers, every pace seconds, for the given
// number of times.
func storm(servers, some, times int, drain, pace float64) (moves []move, last float64) {
	for i := range times {
		last = float64(2*i+1) * pace
		these := numbers(servers+i*some+1, some)
		moves = append(moves, move{at: last - pace, add: these}, move{at: last, drain: these}, move{at: last + drain, remove: these})
	}
	return moves, last
}
