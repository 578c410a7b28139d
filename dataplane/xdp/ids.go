package xdp

import "fmt"

// pool gives out the numbers from first up to but not including end, the
// lowest free one first.
type pool struct {
	what       string // and the mend, for errors
	first, end uint32
	used       map[uint32]bool
	// free is not above the lowest free number.
	free uint32
}

func newPool(what string, first, end uint32) pool {
	return pool{what: what, first: first, end: end, used: map[uint32]bool{}, free: first}
}

func (p *pool) take() (uint32, error) {
	for ; p.free < p.end; p.free++ {
		if !p.used[p.free] {
			p.used[p.free] = true
			return p.free, nil
		}
	}
	return 0, fmt.Errorf("xdp: all %d %s are in use", p.end-p.first, p.what)
}

func (p *pool) mark(id uint32) { p.used[id] = true }

func (p *pool) giveBack(id uint32) {
	delete(p.used, id)
	p.free = min(p.free, id)
}

// ids are the numbers by which the maps refer to each other.
type ids struct {
	frontends, servers, rings pool
}

func newIDs(c Config) ids {
	return ids{
		frontends: newPool("frontends (MaxFrontends)", 0, uint32(c.MaxFrontends)),
		servers:   newPool("backends (MaxBackends)", 1, uint32(c.MaxBackends)+1),
		rings:     newPool("rings (MaxFrontends)", 0, uint32(c.MaxFrontends)+1),
	}
}
