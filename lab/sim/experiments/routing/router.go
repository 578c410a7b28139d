package routing

import "time"

// How a router batches changes before it writes them, like Fairlead's
// (advertise/bgp/router.go): as long as there is at least one change per millisecond, for
// 20 ms or as long as the last write took, but at most 250 ms.
const (
	coalesce  = int64(time.Millisecond)
	gatherFor = 20 * int64(time.Millisecond)
	gatherMax = 250 * int64(time.Millisecond)
)

// router contains the state of a router's kernel.
type router struct {
	n       *network
	id      int32
	number  int
	written []bool
	// changed contains the groups of prefixes to check, each once.
	changed []int32
	marked  []bool
	last    int64 // time of the last change
	end     int64 // end of batching
	took    int64 // duration of the last write
	waiting bool  // for changes, or for the kernel
}

func newRouter(n *network, id int32, number int) *router {
	return &router{n: n, id: id, number: number, written: make([]bool, n.c.Speakers), marked: make([]bool, n.groups)}
}

// note marks the prefixes of a speaker as changed.
func (r *router) note(speaker int32) {
	now := r.n.to.Now()
	r.last = now
	if g := speaker % int32(r.n.groups); !r.marked[g] {
		r.marked[g] = true
		r.changed = append(r.changed, g)
	}
	if !r.waiting {
		r.gather(now)
	}
}

func (r *router) gather(now int64) {
	r.waiting = true
	r.end = now + min(max(r.took, gatherFor), gatherMax)
	r.n.to.At(now+coalesce, event{kind: gathered, node: r.id})
}

// gathered writes, unless something has changed recently.
func (r *router) gathered() {
	now := r.n.to.Now()
	if r.last > now-coalesce && now < r.end {
		r.n.to.At(now+coalesce, event{kind: gathered, node: r.id})
		return
	}
	at := now
	for _, g := range r.changed {
		r.marked[g] = false
		at += int64(r.n.c.Prefixes) * int64(r.n.c.Write)
		for s := int(g); s < len(r.written); s += r.n.groups {
			if up := r.n.nodes[r.id].has[s] != 0; up != r.written[s] {
				r.written[s] = up
				r.n.wrote(r.number, int32(s), up, at)
			}
		}
	}
	r.changed, r.took = r.changed[:0], at-now
	r.n.to.At(at, event{kind: wrote, node: r.id})
}

// wrote continues with the changes that arrived meanwhile.
func (r *router) wrote() {
	r.waiting = false
	if len(r.changed) > 0 {
		r.gather(r.n.to.Now())
	}
}
