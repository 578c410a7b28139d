package ecmp

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
)

// world is the environment before anything changes.
type world struct {
	services, servers, slots int // servers and slots per service
	balancersTotal           int
	groups                   []follow.Group
	places                   []int // position of what changes, by group or service
	lives                    follow.Lives
	rate                     float64 // connections per second and service
	mean                     float64 // mean lifetime, in seconds
	followed, closely        int     // connections followed per service, and for a service that is the only one touched
	seed                     uint64
}

func newWorld(r *experiments.Run) (*world, error) {
	w := &world{
		services: r.Int("services"), slots: r.Int("slots"), balancersTotal: r.Int("balancers"), mean: r.Param("life"),
		lives: follow.NewLives(r.Param("life"), r.Param("spread")), seed: follow.Mix(uint64(r.Seed)),
	}
	w.servers, w.rate = r.Int("servers")/w.services, r.Param("rate")/float64(w.services)
	w.followed = max(r.Int("followed")/w.services, 1)
	w.closely = r.Int("followed") / 20
	group := min(r.Int("group"), w.balancersTotal)
	switch {
	case w.servers < 3:
		return nil, fmt.Errorf("%d servers are too few for %d services: each needs 3", r.Int("servers"), w.services)
	case group > r.Int("buckets"):
		return nil, errors.New("a group has more balancers than buckets: ask for more buckets")
	case group < 3:
		return nil, errors.New("a group needs 3 balancers")
	}
	next := follow.Balancer(1)
	for range w.balancersTotal / group {
		hops := make([]follow.Balancer, group)
		for i := range hops {
			hops[i] = next
			next++
		}
		w.groups = append(w.groups, follow.NewGroup(hops, r.Int("buckets")))
	}
	for i := range max(w.services, len(w.groups)) {
		w.places = append(w.places, int(follow.Mix(w.seed+uint64(i))>>33))
	}
	return w, nil
}

// tally counts a service's simulated connections by their result. Each one represents
// weight connections.
type tally struct {
	weight float64
	// Every followed connection is open (at the end), closed meanwhile, or lost with its
	// server.
	followed, open, closed, lost int
	// before is the number of connections open at the first change.
	before int
	broken [follow.Kinds][follow.Ways]int
}

func (t *tally) check() error {
	if t.followed != t.open+t.closed+t.lost {
		return fmt.Errorf("of %d connections %d are open, %d closed, %d lost: some are nowhere", t.followed, t.open, t.closed, t.lost)
	}
	return nil
}

// follow runs a service through a scenario.
func (w *world) follow(service int, s *scenario, f *fleet, sc *scope, builder *ring.Builder) (*tally, error) {
	touched := service < sc.touched(w.services)
	n := w.followed
	if touched && sc.touched(w.services) == 1 {
		n = w.closely
	}
	farm, err := follow.NewFarm(w.slots, builder, follow.Members(service, w.servers))
	if err != nil {
		return nil, err
	}
	end := s.changes[len(s.changes)-1].at
	t := &tally{weight: w.rate * (w.mean + end) / float64(n)}
	state := &follow.State{Groups: f.groups[0], Farm: farm, Began: f.began}
	random := follow.NewStream(w.seed, uint64(service))
	conns := w.open(service, n, end, state, t, random)
	for step := range s.changes {
		c := &s.changes[step]
		conns = w.arrive(service, conns, n, c.at, end, state, t, random)
		state.Groups = f.groups[step+1]
		if touched && c.ofServers() || len(f.alive[step+1]) > len(f.alive[step]) {
			members := farm.Servers()
			if touched && c.ofServers() {
				members = c.servers(service, members, w.places[service])
			}
			if err := farm.Change(members, f.alive[step+1]); err != nil {
				return nil, err
			}
		}
		conns = packets(conns, c.at, state, t)
	}
	t.open = len(conns)
	for i := range conns {
		t.count(&conns[i])
	}
	return t, t.check()
}

// open returns the connections that are open before the first change. The n followed
// connections are divided between these and the ones that arrive later, in proportion to
// their expected numbers.
func (w *world) open(service, n int, end float64, state *follow.State, t *tally, random *stochastic.Stream) []follow.Conn {
	conns := make([]follow.Conn, 0, n)
	for i := range int(float64(n) * w.mean / (w.mean + end)) {
		life, over := w.lives.Met(random)
		conns = append(conns, state.Open(service, w.seed+uint64(i), -over, life-over))
	}
	t.followed, t.before = len(conns), len(conns)
	return conns
}

// arrive opens the connections that arrive before the given time, which is not the first
// change.
func (w *world) arrive(service int, conns []follow.Conn, n int, until, end float64, state *follow.State, t *tally, random *stochastic.Stream) []follow.Conn {
	for i := t.followed; i < int(float64(n)*(w.mean+until)/(w.mean+end)); i++ {
		born := until * random.Float()
		conns = append(conns, state.Open(service, w.seed+uint64(i), born, born+w.lives.New(random)))
		t.followed++
	}
	return conns
}

// packets sends a packet on each connection that is open at the given time, and returns
// those connections.
func packets(conns []follow.Conn, now float64, state *follow.State, t *tally) []follow.Conn {
	left := conns[:0]
	for i := range conns {
		c := &conns[i]
		if c.Ends <= now {
			t.closed++
			t.count(c)
			continue
		}
		if !state.Step(c) {
			t.lost++
			t.count(c)
			continue
		}
		left = append(left, *c)
	}
	return left
}

// count records with which ways a connection broke.
func (t *tally) count(c *follow.Conn) {
	for k := range follow.Kinds {
		for way := range follow.Ways {
			if c.Broken&follow.Bit(k, way) != 0 {
				t.broken[k][way]++
			}
		}
	}
}
