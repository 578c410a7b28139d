// Package routing asks how soon routers forget a balancer that goes, and how many
// packets are lost until then, where thousands of BGP speakers announce through a
// hierarchy of route reflectors: timers, what a node needs for each path, and the
// pace at which routers write to their kernels.
package routing

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/lab/sim/agenda"
	"github.com/fairlead/fairlead/lab/sim/beyond/draw"
)

// Costs are what work takes.
type Costs struct {
	// Link is one way between neighbours, Wake what passes besides until a node
	// looks at a message, Death until neighbours of a process that was killed hear
	// that its connections have ended.
	Link, Wake, Death time.Duration
	// Path is a node's work to take in one path, or a withdrawal; Send that to tell
	// one to one peer; Write a router's to write one prefix to its kernel.
	Path, Send, Write time.Duration
}

// Config is a network in which every speaker's routes have arrived.
type Config struct {
	Speakers int
	// Depth is how many reflectors there are one above the other. Each is one of
	// Reflectors that do the same, 1 or 2.
	Depth, Reflectors int
	Routers           int
	// Prefixes are those that a speaker announces; Width speakers announce the
	// same ones.
	Prefixes, Width int
	// MRAI is the least time between two updates from one node to one peer (RFC
	// 4271, section 9.2.1.1); 0: none.
	MRAI time.Duration
	// Hold is how long a peer may be silent, a third of which it is at most. BFD
	// notices its silence after Multiplier times Interval; without it, 0.
	Hold, Interval time.Duration
	Multiplier     int
	// ToSpeakers says that reflectors tell speakers of each other.
	ToSpeakers bool
	// Churn is how many speakers a second, of all, stop and start again meanwhile.
	Churn float64
	Costs
	Seed uint32
}

// node is a reflector or a router.
type node struct {
	dead bool
	// first is the first speaker that it hears of, and told, for each, who tells
	// it: a bit each of the reflectors below, or the lowest for the speaker itself.
	first int32
	told  []uint8
	peers []peer // who it tells
	below int    // peers that tell it

	jobs []job // from next on, to be done one after the other
	next int
	busy bool

	router *router // of a router
	// idle is since when there is nothing to do, or will be.
	idle  int64
	taken int64 // updates taken in
}

// peer is who a node tells.
type peer struct {
	to   int32
	bit  uint8 // of the node among those that tell it
	said []bool
	// From free on another update may be sent; later are the speakers that wait
	// for it.
	free  int64
	later []int32
}

// job is an update that a node has heard.
type job struct {
	speaker int32
	bit     uint8
	up      bool
}

type kind uint8

const (
	hears    kind = iota // a node: an update
	did                  // a node has done its job
	flushes              // a node: an interval toward a peer has ended
	gathered             // a router: it may be time to write
	wrote                // a router has written
	lost                 // a node notices that the reflector bit below is gone
	stops                // a speaker withdraws
	starts               // a speaker announces
	fails                // a reflector dies; silently, where peer is 1
	dies                 // a speaker does; silently, where peer is 1
	churns               // some speaker stops, and starts again
)

type event struct {
	kind kind
	node int32 // or the speaker
	peer int32
	job  job
}

// network is a Config at work.
type network struct {
	c      *Config
	nodes  []node
	leaves [][]int32 // by cluster of the lowest level, its reflectors
	fan    int
	level  [][]int32 // the nodes of each level, from the lowest, then the routers
	to     agenda.Agenda[event]
	random draw.Stream
	groups int
	up     []bool // which speakers announce
	victim int32  // a speaker that does not churn
	wrote  func(router int, speaker int32, up bool, at int64)
}

// fanOf is the least number of children with which a hierarchy of that depth has
// room for all.
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
	span := n.fan // speakers below a node of the level
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
	n.nodes = append(n.nodes, node{first: int32(first), told: make([]uint8, speakers), below: speakers})
	return int32(len(n.nodes) - 1)
}

// join lets all of a cluster tell all of those above it.
func (n *network) join(cluster, above []int32) {
	for bit, id := range cluster {
		k := &n.nodes[id]
		for _, to := range above {
			k.peers = append(k.peers, peer{to: to, bit: 1 << bit, said: make([]bool, len(k.told))})
		}
	}
}

// settled makes it so that all speakers' routes have arrived everywhere.
func (n *network) settled() {
	all := uint8(1<<n.c.Reflectors - 1)
	for i := range n.up {
		n.up[i] = true
	}
	for id := range n.nodes {
		k := &n.nodes[id]
		for i := range k.told {
			k.told[i] = all
			if id < len(n.level[0]) {
				k.told[i] = 1
			}
			for p := range k.peers {
				k.peers[p].said[i] = true
			}
			if k.router != nil {
				k.router.held[i] = true
			}
		}
	}
}

// leavesOf are the reflectors that a speaker has sessions with.
func (n *network) leavesOf(speaker int32) []int32 {
	return n.leaves[min(int(speaker)/n.fan, len(n.leaves)-1)]
}

// run goes on until a moment.
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
	case hears:
		n.hear(e.node, e.job)
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

// announce lets a speaker tell its reflectors that its routes are there, or gone,
// after a while.
func (n *network) announce(speaker int32, up bool, after time.Duration) {
	n.up[speaker] = up
	for _, leaf := range n.leavesOf(speaker) {
		n.tell(leaf, job{speaker, 1, up}, after)
	}
}

// die lets a speaker end: each of its reflectors hears that the connection has
// ended, or notices for itself that it is silent.
func (n *network) die(speaker int32, silently bool) {
	if !silently {
		n.announce(speaker, false, n.c.Death)
		return
	}
	n.up[speaker] = false
	for _, leaf := range n.leavesOf(speaker) {
		n.to.At(n.to.Now()+int64(n.silence()), event{kind: hears, node: leaf, job: job{speaker, 1, false}})
	}
}

// churn lets a speaker stop, for a second, and says when the next one does.
func (n *network) churn() {
	if s := int32(n.random.Below(n.c.Speakers)); n.up[s] && s != n.victim {
		n.announce(s, false, 0)
		n.to.At(n.to.Now()+int64(time.Second), event{kind: starts, node: s})
	}
	n.to.At(n.to.Now()+int64(n.random.Exp()/n.c.Churn*float64(time.Second)), event{kind: churns})
}

// tell lets a node hear an update, after a while.
func (n *network) tell(to int32, j job, after time.Duration) {
	n.to.At(n.to.Now()+int64(after+n.c.Link+n.c.Wake), event{kind: hears, node: to, job: j})
}

// silence draws after what time a neighbour notices that somebody is silent.
func (n *network) silence() time.Duration {
	limit, period := n.c.Hold, n.c.Hold/3
	if n.c.Interval > 0 {
		limit, period = time.Duration(n.c.Multiplier)*n.c.Interval, n.c.Interval
	}
	// Both have up to a quarter taken off each pause (RFC 4271, section 10; RFC
	// 5880, section 6.8.7).
	since := n.random.Float() * float64(1-float64(n.random.Float()/4))
	return limit - time.Duration(float64(since*float64(period)))
}

// Validate says which field is out of bounds.
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
		return fmt.Errorf("routing: nothing would notice silence: set BFD's interval and multiplier, or a hold time of 3 s at least")
	case c.MRAI < 0 || c.Churn < 0:
		return fmt.Errorf("routing: mrai %s, churn %g; want no less than 0", c.MRAI, c.Churn)
	}
	return nil
}
