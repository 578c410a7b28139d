package services

import "time"

// agent is a running agent of a node.
type agent struct {
	c       *Config
	all     []write
	known   []int64 // time at which each write is decoded
	next    int     // the first write that no pass has included
	written int64   // end of the last pass; initially long ago
	resync  int64   // time of the next full comparison
	passes  int
	entries int
	busy    int64 // CPU time
	done    []int64
}

// node returns a node's agent after all writes: received contains the times at which the
// node receives them.
func (c *Config) node(all []write, received []int64) *agent {
	a := &agent{c: c, all: all, known: make([]int64, len(all)), written: -int64(time.Hour), resync: never, done: make([]int64, len(all))}
	free := int64(0)
	for i, at := range received {
		free = max(free, at) + int64(c.Decode)
		a.known[i] = free
	}
	a.busy = int64(c.Decode) * int64(len(all))
	if c.Resync > 0 {
		// Nodes start at different times.
		a.resync = int64(float64(received[0]%997) / 997 * float64(c.Resync))
	}
	for a.next < len(all) {
		a.pass(a.due())
	}
	return a
}

// due returns the start of the next pass according to the pacer. Each change recalculates
// it.
func (a *agent) due() int64 {
	first := a.known[a.next]
	i := a.next
	for {
		due := max(a.c.Pacer.Due(moment(first), moment(a.known[i]), moment(a.written)).UnixNano(), a.written)
		if i+1 == len(a.known) || a.known[i+1] > due {
			return due
		}
		i++
	}
}

func moment(at int64) time.Time { return time.Unix(0, at) }

// pass writes everything known by then. Changes do not wait for comparisons with the kernel,
// which take CPU time.
func (a *agent) pass(begin int64) {
	work := int64(a.c.Pass) + int64(a.c.All)*int64(a.c.Services)
	for ; a.resync <= begin; a.resync += int64(a.c.Resync) {
		compare := int64(a.c.Compare) * int64(a.c.Services)
		a.busy += compare
		a.resync += compare
	}
	end := a.next
	services := map[int32]bool{}
	for ; end < len(a.all) && a.known[end] <= begin; end++ {
		services[a.all[end].service] = true
	}
	work += int64(a.c.Entry) * int64(len(services))
	a.written = begin + work
	for ; a.next < end; a.next++ {
		a.done[a.next] = a.written
	}
	a.passes++
	a.entries += len(services)
	a.busy += work
}
