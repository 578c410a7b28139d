// Package alloc assigns numbers and positions in the kernel's tables. What is released rests
// until no packet can still refer to it. It computes only: the owner of the tables waits for
// the packets. Tests need no kernel.
package alloc

import (
	"fmt"
	"math/bits"
)

// Pool allocates the numbers from first up to but not including end, lowest first. A
// released number rests, because a packet may still be looking it up.
type Pool struct {
	what       string
	first, end uint32
	rouse      func() error
	used       []uint64 // one bit each
	// free is at most the lowest free number.
	free    uint32
	resting []uint32
}

// NewPool returns a pool of which all numbers are free. what names them in errors, with
// the option that raises their number. rouse waits until no packet can be looking up a
// resting number, and calls Wake.
func NewPool(what string, first, end uint32, rouse func() error) Pool {
	return Pool{what: what, first: first, end: end, rouse: rouse, used: make([]uint64, end/64+1), free: first}
}

// Used returns how many numbers are taken, including resting ones, and how many there are.
func (p *Pool) Used() (used, size int) {
	for _, word := range p.used {
		used += bits.OnesCount64(word)
	}
	return used, int(p.end - p.first)
}

// Take returns the lowest free number, after rouse if all are taken.
func (p *Pool) Take() (uint32, error) {
	if id, ok := p.lowest(); ok {
		return id, nil
	}
	if len(p.resting) > 0 {
		if err := p.rouse(); err != nil {
			return 0, err
		}
		if id, ok := p.lowest(); ok {
			return id, nil
		}
	}
	return 0, fmt.Errorf("xdp: all %d %s are in use", p.end-p.first, p.what)
}

func (p *Pool) lowest() (uint32, bool) {
	for p.free < p.end {
		taken := p.used[p.free/64] | (1<<(p.free%64) - 1)
		if p.free = p.free&^63 + uint32(bits.TrailingZeros64(^taken)); taken != ^uint64(0) && p.free < p.end {
			p.Mark(p.free)
			return p.free, true
		}
	}
	return 0, false
}

// Mark takes exactly this number, unless it is outside the pool.
func (p *Pool) Mark(id uint32) {
	if id < p.end {
		p.used[id/64] |= 1 << (id % 64)
	}
}

// GiveBack lets a number rest.
func (p *Pool) GiveBack(id uint32) { p.resting = append(p.resting, id) }

// Wake makes resting numbers available again.
func (p *Pool) Wake() {
	for _, id := range p.resting {
		if id < p.end {
			p.used[id/64] &^= 1 << (id % 64)
			p.free = min(p.free, id)
		}
	}
	p.resting = nil
}
