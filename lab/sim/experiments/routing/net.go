// Package routing simulates how soon routers remove a load balancer that goes away, and
// how many packets are lost until then, with thousands of BGP speakers that advertise
// through a hierarchy of route reflectors. It models timers, the work of a node per path,
// and the rate at which routers write to their kernels.
package routing

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/lab/sim/eventqueue"
	"github.com/fairlead/fairlead/lab/sim/experiments/draw"
)

// Costs contains the durations of work.
type Costs struct {
	// Link is the one-way delay between neighbors. Wake is the additional delay until a
	// node processes a message. Death is the time until the neighbors of a killed process
	// notice that its connections have ended.
	Link, Wake, Death time.Duration
	// Path is a node's work to process one path, or a withdrawal. Send is the work to
	// send one to one peer. Write is a router's work to write one prefix to its kernel.
	Path, Send, Write time.Duration
}

// Config is a network in which every speaker's routes have propagated.
type Config struct {
	Speakers int
	// Depth is the number of levels of reflectors. Each reflector is one of Reflectors
	// redundant ones, 1 or 2.
	Depth, Reflectors int
	Routers           int
	// Prefixes is the number of prefixes that a speaker advertises. Width speakers
	// advertise the same ones.
	Prefixes, Width int
	// MRAI is the minimum time between two updates from one node to one peer (RFC 4271,
	// section 9.2.1.1); 0 means none.
	MRAI time.Duration
	// Hold is the hold time. Keepalives are sent at a third of it. BFD detects silence
	// after Multiplier times Interval. Interval is 0 without BFD.
	Hold, Interval time.Duration
	Multiplier     int
	// ToSpeakers makes reflectors also advertise the speakers' routes to speakers.
	ToSpeakers bool
	// Churn is how many of all speakers stop and start again per second meanwhile.
	Churn float64
	Costs
	Seed uint32
}

// node is a reflector or a router.
type node struct {
	dead bool
	// first is the first speaker whose routes it receives. has contains, for each
	// speaker from there on, from whom it has the routes: one bit per reflector below, or
	// the lowest bit for the speaker itself.
	first int32
	has   []uint8
	peers []peer // to which it advertises
	below int    // number of peers that advertise to it

	jobs []job // from next on, processed one after the other
	next int
	busy bool

	router *router // nil for a reflector
	// idle is the time at which there is, or will be, nothing left to do.
	idle  int64
	taken int64 // number of updates processed
}

// peer is a node to which a node advertises.
type peer struct {
	to   int32
	bit  uint8 // of this node among those that advertise to the peer
	sent []bool
	// free is the time from which another update may be sent. later contains the speakers
	// whose updates wait for it.
	free  int64
	later []int32
}

// job is an update that a node has received.
type job struct {
	speaker int32
	bit     uint8
	up      bool
}

type kind uint8

const (
	receives kind = iota // a node receives an update
	did                  // a node has processed its job
	flushes              // a node's MRAI interval toward a peer has ended
	gathered             // a router may write now
	wrote                // a router has written
	lost                 // a node detects that the reflector with that bit below it is gone
	stops                // a speaker withdraws its routes
	starts               // a speaker advertises its routes
	fails                // a reflector dies, silently if peer is 1
	dies                 // a speaker dies, silently if peer is 1
	churns               // a random speaker stops, and starts again
)

type event struct {
	kind kind
	node int32 // or the speaker
	peer int32
	job  job
}

// network is a running Config.
type network struct {
	c      *Config
	nodes  []node
	leaves [][]int32 // the reflectors of each cluster of the lowest level
	fan    int
	level  [][]int32 // the nodes of each level, from the lowest, and then the routers
	to     eventqueue.Agenda[event]
	random draw.Stream
	groups int
	up     []bool // the speakers that currently advertise
	victim int32  // a speaker that is excluded from churn
	wrote  func(router int, speaker int32, up bool, at int64)
}

// fanOf returns the minimum number of children with which a hierarchy of that depth has
// room for all speakers.
func fanOf(speakers, depth int) int {
	for fan := 1; ; fan++ {
		room := 1
		for range depth {
			room *= fan
		}
		if room >= speakers {
			return fan
		}
	}
}

func newNetwork(c *Config) *network {
	n := &network{c: c, fan: fanOf(c.Speakers, c.Depth), random: draw.NewStream(c.Seed, 5), groups: (c.Speakers + c.Width - 1) / c.Width,
		up: make([]bool, c.Speakers), victim: -1, wrote: func(int, int32, bool, int64) {}}
	span := n.fan // number of speakers below a node of this level
	var below [][]int32
	for level := range c.Depth {
		if level == c.Depth-1 {
			span = c.Speakers
		}
		var clusters [][]int32
		for first := 0; first < c.Speakers; first += span {
			var cluster []int32
			for range c.Reflectors {
				cluster = append(cluster, n.add(first, min(span, c.Speakers-first)))
			}
			clusters = append(clusters, cluster)
		}
		for i, cluster := range below {
			n.join(cluster, clusters[i/n.fan])
		}
		if level == 0 {
			n.leaves = clusters
		}
		below = clusters
		n.level = append(n.level, flat(clusters))
		span *= n.fan
	}
	var routers []int32
	for number := range c.Routers {
		id := n.add(0, c.Speakers)
		n.nodes[id].router = newRouter(n, id, number)
		routers = append(routers, id)
	}
	n.join(below[0], routers)
	n.level = append(n.level, routers)
	return n
}

func flat(clusters [][]int32) (all []int32) {
	for _, c := range clusters {
		all = append(all, c...)
	}
	return all
}

func (n *network) add(first, speakers int) int32 {
	n.nodes = append(n.nodes, node{first: int32(first), has: make([]uint8, speakers), below: speakers})
	return int32(len(n.nodes) - 1)
}

// join makes all nodes of a cluster advertise to all nodes above.
func (n *network) join(cluster, above []int32) {
	for bit, id := range cluster {
		k := &n.nodes[id]
		for _, to := range above {
			k.peers = append(k.peers, peer{to: to, bit: 1 << bit, sent: make([]bool, len(k.has))})
		}
	}
}

// settled sets the state in which all speakers' routes have propagated everywhere.
func (n *network) settled() {
	all := uint8(1<<n.c.Reflectors - 1)
	for i := range n.up {
		n.up[i] = true
	}
	for id := range n.nodes {
		k := &n.nodes[id]
		for i := range k.has {
			k.has[i] = all
			if id < len(n.level[0]) {
				k.has[i] = 1
			}
			for p := range k.peers {
				k.peers[p].sent[i] = true
			}
			if k.router != nil {
				k.router.written[i] = true
			}
		}
	}
}

// leavesOf returns the reflectors that a speaker has sessions with.
func (n *network) leavesOf(speaker int32) []int32 {
	return n.leaves[min(int(speaker)/n.fan, len(n.leaves)-1)]
}

// run processes events until the given time.
func (n *network) run(end int64) {
	for e, ok := n.to.Next(end); ok; e, ok = n.to.Next(end) {
		n.handle(e)
	}
}

func (n *network) handle(e event) {
	switch e.kind {
	case dies:
		n.die(e.node, e.peer == 1)
	case fails:
		n.kill(e.node, e.peer == 1)
	case churns:
		n.churn()
	case stops:
		n.announce(e.node, false, 0)
	case starts:
		n.announce(e.node, true, 0)
	case receives:
		n.enqueue(e.node, e.job)
	case did:
		n.do(e.node)
	case flushes:
		n.flush(e.node, e.peer)
	case gathered:
		n.nodes[e.node].router.gathered()
	case wrote:
		n.nodes[e.node].router.wrote()
	case lost:
		n.purge(e.node, e.job.bit, e.job.speaker, e.peer)
	}
}

// announce lets a speaker advertise or withdraw its routes, after a delay.
func (n *network) announce(speaker int32, up bool, after time.Duration) {
	n.up[speaker] = up
	for _, leaf := range n.leavesOf(speaker) {
		n.deliver(leaf, job{speaker, 1, up}, after)
	}
}

// die ends a speaker. Each of its reflectors is notified that the connection has ended,
// or detects the silence by itself.
func (n *network) die(speaker int32, silently bool) {
	if !silently {
		n.announce(speaker, false, n.c.Death)
		return
	}
	n.up[speaker] = false
	for _, leaf := range n.leavesOf(speaker) {
		n.to.At(n.to.Now()+int64(n.silence()), event{kind: receives, node: leaf, job: job{speaker, 1, false}})
	}
}

// churn stops a speaker for a second, and schedules the next one.
func (n *network) churn() {
	if s := int32(n.random.Below(n.c.Speakers)); n.up[s] && s != n.victim {
		n.announce(s, false, 0)
		n.to.At(n.to.Now()+int64(time.Second), event{kind: starts, node: s})
	}
	n.to.At(n.to.Now()+int64(n.random.Exp()/n.c.Churn*float64(time.Second)), event{kind: churns})
}

// deliver delivers an update to a node, after a delay.
func (n *network) deliver(to int32, j job, after time.Duration) {
	n.to.At(n.to.Now()+int64(after+n.c.Link+n.c.Wake), event{kind: receives, node: to, job: j})
}

// silence draws the time after which a neighbor detects silence.
func (n *network) silence() time.Duration {
	limit, period := n.c.Hold, n.c.Hold/3
	if n.c.Interval > 0 {
		limit, period = time.Duration(n.c.Multiplier)*n.c.Interval, n.c.Interval
	}
	// Both reduce each interval by up to a quarter (RFC 4271, section 10; RFC 5880,
	// section 6.8.7).
	since := n.random.Float() * float64(1-float64(n.random.Float()/4))
	return limit - time.Duration(float64(since*float64(period)))
}

// Validate reports which field is out of bounds.
func (c *Config) Validate() error {
	switch {
	case c.Speakers < 1 || c.Speakers > 1_000_000:
		return fmt.Errorf("routing: speakers: %d is not from 1 to 1000000", c.Speakers)
	case c.Depth < 1 || c.Depth > 5:
		return fmt.Errorf("routing: depth: %d is not from 1 to 5", c.Depth)
	case c.Reflectors < 1 || c.Reflectors > 2:
		return fmt.Errorf("routing: reflectors: %d; want 1, or 2 that do the same", c.Reflectors)
	case c.Routers < 1 || c.Prefixes < 1 || c.Width < 1:
		return fmt.Errorf("routing: routers, prefixes and width: %d, %d, %d; want 1 at least", c.Routers, c.Prefixes, c.Width)
	case c.Interval > 0 && c.Multiplier < 1 || c.Interval <= 0 && c.Hold < 3*time.Second:
		return fmt.Errorf("routing: silence would not be detected: set BFD's interval and multiplier, or a hold time of at least 3 s")
	case c.MRAI < 0 || c.Churn < 0:
		return fmt.Errorf("routing: mrai %s, churn %g; want no less than 0", c.MRAI, c.Churn)
	}
	return nil
}
