package xdp

import (
	"fmt"
	"math/bits"
)

// pool allocates the numbers from first up to but not including end, lowest first. A
// released number rests, because a packet may still be looking it up.
type pool struct {
	what       string // with the fix, for errors
	first, end uint32
	// rouse waits until no packet can be looking up a resting number, and wakes them.
	rouse func() error
	used  []uint64 // one bit each
	// free is at most the lowest free number.
	free    uint32
	resting []uint32
}

func newPool(what string, first, end uint32, rouse func() error) pool {
	return pool{what: what, first: first, end: end, rouse: rouse, used: make([]uint64, end/64+1), free: first}
}

func (p *pool) take() (uint32, error) {
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

func (p *pool) lowest() (uint32, bool) {
	for p.free < p.end {
		taken := p.used[p.free/64] | (1<<(p.free%64) - 1)
		if p.free = p.free&^63 + uint32(bits.TrailingZeros64(^taken)); taken != ^uint64(0) && p.free < p.end {
			p.mark(p.free)
			return p.free, true
		}
	}
	return 0, false
}

// mark takes exactly this number, unless it is outside the pool.
func (p *pool) mark(id uint32) {
	if id < p.end {
		p.used[id/64] |= 1 << (id % 64)
	}
}

func (p *pool) giveBack(id uint32) { p.resting = append(p.resting, id) }

// wake makes resting numbers available again.
func (p *pool) wake() {
	for _, id := range p.resting {
		if id < p.end {
			p.used[id/64] &^= 1 << (id % 64)
			p.free = min(p.free, id)
		}
	}
	p.resting = nil
}
