package ringmap

import (
	"runtime"

	"github.com/fairlead/fairlead/core/ring"
)

// upcoming are the rings that Reserve has announced, in this order: the tables of several are
// built together.
type upcoming struct {
	rings []Request
	at    int // how many of them were laid out
	built int // up to which one their tables are built
}

// next records that a new ring is laid out.
func (u *upcoming) next() {
	if u.at++; u.at >= len(u.rings) {
		*u = upcoming{}
	}
}

// aheadPerCPU is for how many rings tables are built together: many enough that all CPUs are
// busy nearly all the time.
const aheadPerCPU = 8

// ahead builds the tables of a new ring and of those after it, unless they are built. It
// only saves time: a ring that comes in another order has its tables built alone.
func (r *Rings) ahead(q *Request) {
	u, size, cpus := &r.coming, q.Entry.RingSize, runtime.GOMAXPROCS(0)
	if cpus == 1 || u.at <= u.built {
		return
	}
	end := min(len(u.rings), u.at+min(aheadPerCPU*cpus, cachedSlots/4/int(max(size, 1))))
	lists := [][]ring.Member{q.Members}
	for i := u.at; i < end; i++ {
		if next := &u.rings[i]; next.Entry.RingSize == size {
			lists = append(lists, next.Members)
		}
	}
	if len(lists) == 1 || r.builder.Ahead(int(size), lists) != nil {
		return // Next fails, too
	}
	u.built = end
}
