package services

import (
	"github.com/fairlead/fairlead/lab/sim/eventqueue"
	"github.com/fairlead/fairlead/lab/sim/experiments/draw"
)

// change is a change of a Service's endpoints, at a time in nanoseconds.
type change struct {
	at      int64
	service int32
}

// changes returns all changes in order.
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
	for i := range all { // evenly spaced, as in fairlead-lab bench rules
		all[i].at = int64(float64(i) / c.Rate * 1e9)
	}
	return all
}

// write is a request of the controller: a Service's slice with all its changes until
// then, and the time at which the server had it.
type write struct {
	at      int64
	service int32
	since   []int64 // the times of the changes
}

// step is an event of the controller.
type step struct {
	kind    stepKind
	service int32
	write   *write
}

type stepKind uint8

const (
	changed stepKind = iota
	due              // batching of a Service has ended
	allowed          // a request may be allowed now
	written          // a request was answered
)

// controller is a running Controller.
type controller struct {
	c       *Config
	to      eventqueue.Agenda[step]
	pending map[int32][]int64 // by Service, the changes that are in no request yet
	queue   []int32
	busy    int   // number of busy workers
	tokens  int64 // accumulated request budget, in nanoseconds
	filled  int64 // when tokens was last updated
	asked   bool  // a step of kind allowed is pending
	done    []write
}

// writes returns the controller's requests, in the order in which the server has them.
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

// price returns how long it takes to accumulate the budget for one request.
func (k *controller) price() int64 { return int64(1e9 / k.c.QPS) }

func (k *controller) most() int64 { return k.price() * int64(k.c.Ahead) }

// start sends the requests that are allowed now.
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

// pay takes the budget for a request, or schedules a retry for when there is enough.
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

// notified returns when a node receives each write. place is its position among the nodes
// that one server notifies.
func (c *Config) notified(all []write, place int) []int64 {
	took, free := int64(c.busy()), int64(0)
	part := float64(place+1) / float64(c.watches())
	moments := make([]int64, len(all))
	for i, w := range all {
		begin := max(w.at, free)
		free = begin + took
		moments[i] = begin + int64(float64(part*float64(took)))
	}
	return moments
}
