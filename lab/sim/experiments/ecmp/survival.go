package ecmp

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/lab/sim/experiments"
	"github.com/fairlead/fairlead/lab/sim/experiments/follow"
)

// The experiment of fairlead-lab bench survival: 10,000 connections of unlimited
// lifetime, four load balancers behind one resilient group, and eight servers.
const (
	survivalConns     = 10000
	survivalBalancers = 4
	survivalServers   = 8
	survivalSlots     = 16381
	survivalBuckets   = 512
	// survivalTimes is how many times as many connections are simulated, to reduce the
	// sampling error.
	survivalTimes = 4
)

const survivalName = "survival"

// survivalWays contains the measured ways, in the order of the columns.
var survivalWays = []follow.Way{follow.SecondChance, follow.FlowTable, follow.Maglev}

// event is an event of the experiment, with the figures in docs/benchmarks of November
// 22, 2026. Load balancers take effect immediately, but servers must start and answer a
// probe first. So load balancers change first if both do.
type event struct {
	name     string
	steps    []change
	measured [3]float64
}

var (
	balancersChange = []change{{addBalancer: true}, {addBalancer: true}, {removeBalancer: true}, {removeBalancer: true}}
	everything      = append(slices.Clone(balancersChange), change{addServer: true}, change{drainServer: true})
)

var survivalEvents = []event{
	{"add-balancer", balancersChange[:2], [3]float64{0, 0, 0}},
	{"remove-balancer", balancersChange[2:3], [3]float64{0, 0, 0}},
	{"kill-balancer", balancersChange[2:3], [3]float64{0, 0, 0}},
	{"add-server", everything[4:5], [3]float64{0, 0, 1161}},
	{"drain-server", everything[5:], [3]float64{0, 0, 1253}},
	{"all-at-once", everything, [3]float64{0, 1205, 2390}},
	{"storm", slices.Concat(everything, everything, everything), [3]float64{0, 7019, 6902}},
}

// survivalTable simulates the experiment for each way.
func survivalTable(seed uint64) (experiments.Table, error) {
	t := experiments.Table{Name: survivalName, Title: "fairlead-lab bench survival: the model, and what was measured, of 10,000 connections",
		Keys: []string{"event"}}
	counts := make([][]float64, len(survivalEvents))
	for _, way := range survivalWays {
		t.Columns = append(t.Columns, way.String())
		broken, err := survive(way, seed)
		if err != nil {
			return t, err
		}
		for i := range broken {
			counts[i] = append(counts[i], broken[i])
		}
	}
	for _, way := range survivalWays {
		t.Columns = append(t.Columns, way.String()+", measured")
	}
	for i, e := range survivalEvents {
		t.Add([]string{e.name}, append(counts[i], e.measured[:]...)...)
	}
	return t, nil
}

// site is the experiment's network.
type site struct {
	state   follow.State
	hops    []follow.Balancer
	members []ring.Member
	now     float64
	next    ring.ID
}

// survive returns how many connections each event breaks. Each broken connection is
// opened again.
func survive(way follow.Way, seed uint64) (broken []float64, err error) {
	s := &site{members: follow.Members(int(seed), survivalServers), next: survivalServers + 1, hops: []follow.Balancer{1, 2, 3, 4}}
	if s.state.Farm, err = follow.NewFarm(survivalSlots, ring.NewBuilder(32*survivalSlots), s.members); err != nil {
		return nil, err
	}
	s.state.Groups = []follow.Group{follow.NewGroup(s.hops, survivalBuckets)}
	s.state.Began = make([]int, survivalBalancers+1)
	conns := make([]follow.Conn, survivalTimes*survivalConns)
	opened := follow.Mix(seed)
	open := func(i int) {
		opened++
		conns[i] = s.state.Open(0, opened, s.now, 0)
	}
	for i := range conns {
		open(i)
	}
	for _, e := range survivalEvents {
		count := 0
		for _, c := range e.steps {
			if err := s.change(&c); err != nil {
				return nil, err
			}
			for i := range conns {
				if s.state.Step(&conns[i]); conns[i].Broken&follow.Bit(follow.Resilient, way) != 0 {
					count++
					open(i)
				}
			}
		}
		broken = append(broken, float64(count)/survivalTimes)
	}
	return broken, nil
}

// change applies one change. The oldest one is removed or drained.
func (s *site) change(c *change) error {
	s.now++
	now := follow.Moment(s.now)
	s.members = slices.Clone(s.members)
	switch {
	case c.addBalancer:
		s.hops = append(slices.Clone(s.hops), follow.Balancer(len(s.state.Began)))
		s.state.Began = append(s.state.Began, int(s.now))
	case c.removeBalancer:
		s.hops = slices.Clone(s.hops[1:])
	case c.addServer:
		s.members = append(s.members, follow.NewMember(0, s.next, now))
		s.next++
	case c.drainServer:
		i := slices.IndexFunc(s.members, func(m ring.Member) bool { return m.Weight > 0 })
		s.members[i].Weight, s.members[i].Drained = 0, now.Add(time.Millisecond)
	}
	s.state.Groups = []follow.Group{s.state.Groups[0].With(s.hops)}
	var began []int
	for _, b := range s.hops {
		began = append(began, s.state.Began[b])
	}
	slices.Sort(began)
	return s.state.Farm.Change(s.members, slices.Compact(began))
}
