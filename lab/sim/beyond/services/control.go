package services

import (
	"github.com/fairlead/fairlead/lab/sim/agenda"
	"github.com/fairlead/fairlead/lab/sim/beyond/draw"
)

// change is one of a Service's endpoints, at a moment in nanoseconds.
type change struct {
	at      int64
	service int32
}

// changes gives all, in their order.
func (c *Config) changes() (all []change) {
	s := draw.NewStream(c.Seed, 7)
	now := int64(0)
	gap := func() int64 { return int64(s.Exp() / c.Rate * 1e9) }
	if c.Burst == 0 {
		for now = gap(); now < int64(c.For); now += gap() {
			all = append(all, change{now, int32(s.Below(c.Services))})
		}
		return all
	}
	for i := range c.Burst * c.Pods {
		all = append(all, change{service: int32(i % c.Burst)})
	}
	for i := len(all) - 1; i > 0; i-- {
		j := s.Below(i + 1)
		all[i], all[j] = all[j], all[i]
	}
	for i := range all { // evenly: as they are told to the loop in fairlead-lab bench rules
		all[i].at = int64(float64(i) / c.Rate * 1e9)
	}
	return all
}

// write is a request of the controller: a Service's slice, with all its changes
// until then, and when the server had it.
type write struct {
	at      int64
	service int32
	since   []int64 // the changes
}

// step is one of the controller's.
type step struct {
	kind    stepKind
	service int32
	write   *write
}

type stepKind uint8

const (
	changed stepKind = iota
	due              // a Service has been gathered
	allowed          // there may be a request to spare
	written          // a request was answered
)

// controller is a Controller at work.
type controller struct {
	c       *Config
	to      agenda.Agenda[step]
	pending map[int32][]int64 // by Service, changes that are not in a request
	queue   []int32
	busy    int   // workers
	tokens  int64 // nanoseconds' worth of requests saved up
	filled  int64 // when they were counted
	asked   bool  // for allowed
	done    []write
}

// writes gives the controller's requests, in the order in which the server has
// them.
func (c *Config) writes(all []change) []write {
	k := &controller{c: c, pending: map[int32][]int64{}}
	if c.QPS > 0 {
		k.tokens = k.most()
	}
	for _, ch := range all {
		k.to.At(ch.at, step{kind: changed, service: ch.service})
	}
	for s, ok := k.to.Next(never); ok; s, ok = k.to.Next(never) {
		switch s.kind {
		case changed:
			k.change(s.service)
		case due:
			k.queue = append(k.queue, s.service)
		case allowed:
			k.asked = false
		case written:
			k.busy--
			s.write.at = k.to.Now()
			k.done = append(k.done, *s.write)
		}
		k.start()
	}
	return k.done
}

const never = int64(1) << 62

func (k *controller) change(service int32) {
	first := len(k.pending[service]) == 0
	k.pending[service] = append(k.pending[service], k.to.Now())
	if first {
		k.to.At(k.to.Now()+int64(k.c.Gather), step{kind: due, service: service})
	}
}

// price is how long a request takes to be saved up.
func (k *controller) price() int64 { return int64(1e9 / k.c.QPS) }

func (k *controller) most() int64 { return k.price() * int64(k.c.Ahead) }

// start makes the requests that may be made now.
func (k *controller) start() {
	for len(k.queue) > 0 && k.busy < k.c.Workers {
		if !k.pay() {
			return
		}
		service := k.queue[0]
		k.queue = k.queue[1:]
		w := &write{service: service, since: k.pending[service]}
		delete(k.pending, service)
		k.busy++
		k.to.At(k.to.Now()+int64(k.c.Write), step{kind: written, write: w})
	}
}

// pay takes what a request costs, or comes back when there is enough.
func (k *controller) pay() bool {
	if k.c.QPS == 0 {
		return true
	}
	now := k.to.Now()
	k.tokens, k.filled = min(k.tokens+now-k.filled, k.most()), now
	if k.tokens >= k.price() {
		k.tokens -= k.price()
		return true
	}
	if !k.asked {
		k.asked = true
		k.to.At(now+k.price()-k.tokens, step{kind: allowed})
	}
	return false
}

// told is when a node, at a place among those that one server tells, hears of
// each write.
func (c *Config) told(all []write, place int) []int64 {
	took, free := int64(c.tell()), int64(0)
	part := float64(place+1) / float64(c.watches())
	moments := make([]int64, len(all))
	for i, w := range all {
		begin := max(w.at, free)
		free = begin + took
		moments[i] = begin + int64(float64(part*float64(took)))
	}
	return moments
}
