package ecmp

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
)

// change contains simultaneous changes: one load balancer of each touched group, and one
// server of each touched service.
type change struct {
	at                                   float64 // in seconds
	addBalancer, removeBalancer          bool
	addServer, removeServer, drainServer bool
}

func (c *change) ofBalancers() bool { return c.addBalancer || c.removeBalancer }
func (c *change) ofServers() bool   { return c.addServer || c.removeServer || c.drainServer }

// scenario is a sequence of changes.
type scenario struct {
	name    string
	changes []change
}

// later is the time between the first and the second change, in seconds.
const later = 30

var scenarios = []scenario{
	{"balancer added", []change{{addBalancer: true}}},
	{"balancer removed", []change{{removeBalancer: true}}},
	{"server added", []change{{addServer: true}}},
	{"server removed", []change{{removeServer: true}}},
	{"server drained", []change{{drainServer: true}}},
	{"server added and balancer removed, at once", []change{{addServer: true, removeBalancer: true}}},
	{"server drained and balancer added, at once", []change{{drainServer: true, addBalancer: true}}},
	{"server added, then a balancer removed", []change{{addServer: true}, {at: later, removeBalancer: true}}},
}

// scope determines how much is changed.
type scope struct {
	name string
	// touched returns the number of groups, or services, in which one load balancer or
	// server changes.
	touched func(all int) int
}

var scopes = []scope{
	{"one", func(int) int { return 1 }},
	{"1 in each", func(all int) int { return all }},
}

// fleet contains the load balancers before the first change and after each one.
type fleet struct {
	groups [][]follow.Group
	began  []int // start time by load balancer
	alive  [][]int
}

// balancers applies a scenario's changes of load balancers.
func (w *world) balancers(s *scenario, touched int) *fleet {
	f := &fleet{groups: [][]follow.Group{w.groups}, began: make([]int, w.balancersTotal+1), alive: [][]int{{0}}}
	for step := range s.changes {
		c := &s.changes[step]
		groups := slices.Clone(f.groups[step])
		alive := f.alive[step]
		if c.addBalancer {
			alive = append(slices.Clone(alive), step+1)
		}
		for g := range groups {
			if g >= touched || !c.ofBalancers() {
				break
			}
			hops := slices.Clone(groups[g].Hops())
			at := w.places[g] % len(hops)
			if c.addBalancer {
				hops = slices.Insert(hops, at, follow.Balancer(len(f.began)))
				f.began = append(f.began, step+1)
			} else {
				hops = slices.Delete(hops, at, at+1)
			}
			groups[g] = groups[g].With(hops)
		}
		f.groups, f.alive = append(f.groups, groups), append(f.alive, alive)
	}
	return f
}

// servers returns a service's members after a change.
func (c *change) servers(service int, members []ring.Member, place int) []ring.Member {
	members = slices.Clone(members)
	now := follow.Moment(c.at)
	switch at := place % len(members); {
	case c.addServer:
		members = append(members, follow.NewMember(service, ring.ID(len(members)+1), now))
	case c.removeServer:
		members = slices.Delete(members, at, at+1)
	case c.drainServer:
		members[at].Weight, members[at].Drained = 0, now.Add(time.Millisecond)
	}
	return members
}
