package flowtable

import (
	"slices"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// The flow table's layout: FLOW_WAYS, FLOW_LOCKED and the fields of a word in
// bpf/balancer/flow.h.
const (
	Ways        = 8
	locked      = 1
	TickShift   = 30 // of nanoseconds
	stateShift  = 28
	proxied     = 0x80
	lingers     = (900*1e9)>>TickShift - (120*1e9)>>TickShift // FLOW_LINGERS, in ticks
	maxServerID = 1<<20 - 1

	generationMask  = 0x7f
	generationReach = generationMask / 2 // maximum distance at which the younger of two is known
)

// Word is the second word of an entry, after its tag.
type Word uint64

func (w Word) server() uint32     { return uint32(w) & maxServerID }
func (w Word) generation() uint32 { return uint32(w>>20) & generationMask }
func (w Word) nat() bool          { return w>>27&1 != 0 }

// State is the flow's state, enum flow_state.
func (w Word) State() uint32 { return uint32(w>>stateShift) & 15 }

// Expires is when it expires, on the clock of Now.
func (w Word) Expires() uint32 { return uint32(w >> 32) }

// described reports whether the flow has data: with nat and fullnat always, else once it
// is no longer opening.
func (w Word) described() bool {
	return w.nat() || w.State() != uint32(bpf.BalancerFlowStateFLOW_OPENING) && w.State() != uint32(bpf.BalancerFlowStateFLOW_UDP_OPENING)
}

// over is the word of an ended flow. It only retains whether the flow has an entry in
// flow_back, which is freed with the flow's entry.
func (w Word) over() Word { return w & (1 << 27) }

// in reports whether the flow is in one of these states.
func (w Word) in(states ...bpf.BalancerFlowState) bool {
	return slices.Contains(states, bpf.BalancerFlowState(w.State()))
}

// IsFlow reports whether it is a flow, not a client's affinity or free.
func (w Word) IsFlow() bool {
	return !w.in(bpf.BalancerFlowStateFLOW_FREE, bpf.BalancerFlowStateFLOW_CLIENT_OPENING, bpf.BalancerFlowStateFLOW_CLIENT)
}

// outlives reports whether packets may match the flow after it has expired, because its
// end is unproven.
func (w Word) outlives() bool {
	return w.in(bpf.BalancerFlowStateFLOW_FINISHING, bpf.BalancerFlowStateFLOW_CLIENT_RESET, bpf.BalancerFlowStateFLOW_LINGERING)
}

// lingering is the word of such a flow from then on: it no longer counts.
func (w Word) lingering() Word {
	return w&^(15<<stateShift) | Word(bpf.BalancerFlowStateFLOW_LINGERING)<<stateShift
}

// What flows add to connections: CONNECTION_GOES_ON, CONNECTION_HAS_ENDED.
const (
	Active = 1 << 32
	Ended  = 1
)

// hasEnded reports whether the flow seems to have ended, or half of it has.
func (w Word) hasEnded() bool {
	return w.in(bpf.BalancerFlowStateFLOW_FINISHING, bpf.BalancerFlowStateFLOW_CLIENT_RESET, bpf.BalancerFlowStateFLOW_SERVER_FIN,
		bpf.BalancerFlowStateFLOW_TIME_WAIT, bpf.BalancerFlowStateFLOW_CLOSED)
}

// counts is what a flow adds to its server's connections.
func (w Word) counts() uint64 {
	switch {
	case w.in(bpf.BalancerFlowStateFLOW_LINGERING):
		return 0
	case w.hasEnded():
		return Ended
	}
	return Active
}

// Halves splits connections into active and ended ones. Either may be negative.
func Halves(connections uint64) [2]int64 {
	ended := int64(int32(connections))
	return [2]int64{(int64(connections) - ended) / Active, ended}
}

// drift returns the correction of a connection count, given a count that took place
// between the readings before and after. A difference that may result from flows that
// started or ended meanwhile is not corrected.
func drift(before, counted, after uint64) (lacks uint64) {
	b, c, a := Halves(before), Halves(counted), Halves(after)
	for i, unit := range [...]uint64{Active, Ended} {
		is := min(max(c[i], min(b[i], a[i])), max(b[i], a[i]))
		lacks += uint64(c[i]-is) * unit
	}
	return lacks
}

// Now is the table's clock.
func Now() uint32 { return uint32(clock.Now() >> TickShift) }

// tagOf reads an entry's tag; 0 if the entry is free or just being reassigned.
func tagOf(tag *uint64) uint64 { return atomic.LoadUint64(tag) &^ locked }

// loadsInOrder orders earlier plain loads before later atomic loads: the latter do not
// pass an atomic store, which does not pass what is before it.
func loadsInOrder() {
	var fence uint64
	atomic.StoreUint64(&fence, 1)
}
