package xdp

// pool gives out the numbers from first up to but not including end, the
// lowest free one first. A number that is given back rests until wake: somebody
// may still be looking it up.
type pool struct {
	what       string // and the mend, for errors
	first, end uint32
	used       map[uint32]bool
	// free is not above the lowest free number.
	free    uint32
	resting []uint32
}

func newPool(what string, first, end uint32) pool {
	return pool{what: what, first: first, end: end, used: map[uint32]bool{}, free: first}
}

// take says false where there is none.
func (p *pool) take() (uint32, bool) {
	for ; p.free < p.end; p.free++ {
		if !p.used[p.free] {
			p.used[p.free] = true
			return p.free, true
		}
	}
	return 0, false
}

func (p *pool) mark(id uint32) { p.used[id] = true }

func (p *pool) giveBack(id uint32) { p.resting = append(p.resting, id) }

// wake lets what rests be given out again.
func (p *pool) wake() {
	for _, id := range p.resting {
		delete(p.used, id)
		p.free = min(p.free, id)
	}
	p.resting = nil
}
