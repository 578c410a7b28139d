package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/netorder"
)

// The flow table's layout: FLOW_WAYS, FLOW_LOCKED and the fields of a word in
// bpf/balancer/flow.h.
const (
	flowWays       = 8
	flowLocked     = 1
	flowTickShift  = 30 // of nanoseconds
	flowStateShift = 28
	flowProxied    = 0x80
	flowLingers    = (900*1e9)>>flowTickShift - (120*1e9)>>flowTickShift // FLOW_LINGERS, in ticks
	maxServerID    = 1<<20 - 1

	generationMask  = 0x7f
	generationReach = generationMask / 2 // maximum distance at which the younger of two is known
)

// flowWord is the second word of an entry, after its tag.
type flowWord uint64

func (w flowWord) server() uint32     { return uint32(w) & maxServerID }
func (w flowWord) generation() uint32 { return uint32(w>>20) & generationMask }
func (w flowWord) nat() bool          { return w>>27&1 != 0 }
func (w flowWord) state() uint32      { return uint32(w>>flowStateShift) & 15 }
func (w flowWord) expires() uint32    { return uint32(w >> 32) }

// described reports whether the flow has data: with nat and fullnat always, else once it
// is no longer opening.
func (w flowWord) described() bool {
	return w.nat() || w.state() != uint32(bpf.BalancerFlowStateFLOW_OPENING) && w.state() != uint32(bpf.BalancerFlowStateFLOW_UDP_OPENING)
}

// over is the word of an ended flow. It only retains whether the flow has an entry in
// flow_back, which is freed with the flow's entry.
func (w flowWord) over() flowWord { return w & (1 << 27) }

// in reports whether the flow is in one of these states.
func (w flowWord) in(states ...bpf.BalancerFlowState) bool {
	return slices.Contains(states, bpf.BalancerFlowState(w.state()))
}

// isFlow reports whether it is a flow, not a client's affinity or free.
func (w flowWord) isFlow() bool {
	return !w.in(bpf.BalancerFlowStateFLOW_FREE, bpf.BalancerFlowStateFLOW_CLIENT_OPENING, bpf.BalancerFlowStateFLOW_CLIENT)
}

// outlives reports whether packets may match the flow after it has expired, because its
// end is unproven.
func (w flowWord) outlives() bool {
	return w.in(bpf.BalancerFlowStateFLOW_FINISHING, bpf.BalancerFlowStateFLOW_CLIENT_RESET, bpf.BalancerFlowStateFLOW_LINGERING)
}

// lingering is the word of such a flow from then on: it no longer counts.
func (w flowWord) lingering() flowWord {
	return w&^(15<<flowStateShift) | flowWord(bpf.BalancerFlowStateFLOW_LINGERING)<<flowStateShift
}

// flowNow is the table's clock.
func flowNow() uint32 { return uint32(clock.Now() >> flowTickShift) }

// tagOf reads an entry's tag; 0 if the entry is free or just being reassigned.
func tagOf(tag *uint64) uint64 { return atomic.LoadUint64(tag) &^ flowLocked }

// loadsInOrder orders earlier plain loads before later atomic loads: the latter do not
// pass an atomic store, which does not pass what is before it.
func loadsInOrder() {
	var fence uint64
	atomic.StoreUint64(&fence, 1)
}

// flowTable is the kernel's flow table. Changing a tag requires the set's lock, which
// user space never takes, because it would delay packets. It changes only words.
type flowTable struct {
	sets        []bpf.BalancerFlowSet
	data        []bpf.BalancerFlowData
	connections []uint64
	nat         []uint64 // bits: NAT_BITS_WORDS in bpf/balancer/nat.h
	lives       [16]uint32
	states      []string
	swept       []uint32      // by server: no flows are left from before this generation
	overtaken   atomic.Uint64 // counts sweeps that make a concurrent one void
	opening     int           // flows that were not established, at the last sweep
	stop, done  chan struct{} // of the sweeper
}

// openFlows opens the flow table, and generates its secret if it has none.
func (d *DataPlane) openFlows(spec *ebpf.CollectionSpec) (err error) {
	t := &d.flows
	if err := spec.Variables[bpf.BalancerVarFlowLives].Get(&t.lives); err != nil {
		return fmt.Errorf("xdp: flow table: %w", err)
	}
	if t.states, err = bpf.EnumNames(spec, "flow_state", "FLOW_", len(t.lives)); err != nil {
		return err
	}
	if t.sets, err = bpf.MapMemory[bpf.BalancerFlowSet](d.kernel.Flows); err != nil {
		return err
	}
	if t.data, err = bpf.MapMemory[bpf.BalancerFlowData](d.kernel.FlowData); err != nil {
		return err
	}
	if t.connections, err = bpf.MapMemory[uint64](d.kernel.Connections); err != nil {
		return err
	}
	if t.nat, err = bpf.MapMemory[uint64](d.kernel.NatBits); err != nil {
		return err
	}
	t.swept = make([]uint32, len(t.connections))
	return makeSecret(d.kernel.FlowSecret)
}

// makeSecret generates the key of the tags, which lets flows outlive an agent.
func makeSecret(m *ebpf.Map) error {
	var secret bpf.BalancerFlowSecret
	if err := m.Lookup(uint32(0), &secret); err != nil {
		return fmt.Errorf("xdp: read the flow table's key: %w", err)
	}
	if secret.K[0] != 0 {
		return nil
	}
	if err := binary.Read(rand.Reader, binary.NativeEndian, &secret); err != nil {
		return fmt.Errorf("xdp: generate the flow table's key: %w", err)
	}
	for i := range secret.K {
		secret.K[i] |= 1
	}
	if err := m.Put(uint32(0), secret); err != nil {
		return fmt.Errorf("xdp: write the flow table's key: %w", err)
	}
	return nil
}

func (d *DataPlane) closeFlows() error {
	d.stopSweeping()
	t := &d.flows
	err := errors.Join(bpf.UnmapMemory(t.sets), bpf.UnmapMemory(t.data), bpf.UnmapMemory(t.connections), bpf.UnmapMemory(t.nat))
	d.flows = flowTable{}
	return err
}

// startSweeping sweeps the table once a second while this process runs. Without it,
// expired entries only wait to be replaced.
func (d *DataPlane) startSweeping() {
	t := &d.flows
	t.stop, t.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(t.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-t.stop:
				return
			case <-tick.C:
				d.sweep(flowNow())
			}
		}
	}()
}

func (d *DataPlane) stopSweeping() {
	t := &d.flows
	if t.stop == nil {
		return
	}
	close(t.stop)
	<-t.done
	t.stop = nil
}

// owners returns the servers that flows can have: by id, the generation + 1, or 0
// without a server.
func (d *DataPlane) owners() []uint32 {
	owners := make([]uint32, len(d.servers.generations))
	for id := range d.servers.byID {
		owners[id] = d.servers.generations[id]&generationMask + 1
	}
	return owners
}

// recount is the state of a sweep.
type recount struct {
	owners, generations []uint32 // at the start
	before, counted     []uint64 // connections
	overtaken           uint64   // flowTable's value at the start
	opening             int      // flows that are not established yet
}

// sweep clears expired flows and those of removed servers, and recounts every server's
// connections.
func (d *DataPlane) sweep(now uint32) {
	d.mu.Lock()
	c := d.beginSweep()
	d.mu.Unlock()
	d.flows.sweep(c, now)
	d.sweepSYN(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endSweep(c)
}

func (d *DataPlane) beginSweep() *recount {
	t := &d.flows
	c := &recount{
		owners: d.owners(), generations: slices.Clone(d.servers.generations),
		before: make([]uint64, len(t.connections)), counted: make([]uint64, len(t.connections)),
		overtaken: t.overtaken.Load(),
	}
	for id := range c.before {
		c.before[id] = atomic.LoadUint64(&t.connections[id])
	}
	return c
}

func (t *flowTable) sweep(c *recount, now uint32) {
	for i := range t.sets {
		for j := range t.sets[i].Way {
			e := &t.sets[i].Way[j]
			w := flowWord(atomic.LoadUint64(&e.Word))
			if w == w.over() {
				continue
			}
			id, next := w.server(), c.next(w, now)
			switch {
			case next != w:
				if t.overtaken.Load() != c.overtaken {
					return
				}
				atomic.CompareAndSwapUint64(&e.Word, uint64(w), uint64(next)) // fails if a packet has changed it meanwhile
			case w.isFlow() && c.owners[id] == w.generation()+1:
				c.counted[id] += w.counts()
				if w.in(bpf.BalancerFlowStateFLOW_OPENING, bpf.BalancerFlowStateFLOW_ANSWERED) {
					c.opening++
				}
			}
		}
	}
}

// next returns the new word of a flow: unchanged, unless it has expired or its server is
// removed.
func (c *recount) next(w flowWord, now uint32) flowWord {
	ago := int32(now - w.expires())
	switch {
	case c.void(w):
		return w.over()
	case ago < 0:
		return w
	case w.outlives() && ago < flowLingers:
		return w.lingering()
	}
	return w.over()
}

// What flows add to connections: CONNECTION_GOES_ON, CONNECTION_HAS_ENDED.
const (
	connectionActive   = 1 << 32
	connectionHasEnded = 1
)

// hasEnded reports whether the flow seems to have ended, or half of it has.
func (w flowWord) hasEnded() bool {
	return w.in(bpf.BalancerFlowStateFLOW_FINISHING, bpf.BalancerFlowStateFLOW_CLIENT_RESET, bpf.BalancerFlowStateFLOW_SERVER_FIN,
		bpf.BalancerFlowStateFLOW_TIME_WAIT, bpf.BalancerFlowStateFLOW_CLOSED)
}

// counts is what a flow adds to its server's connections.
func (w flowWord) counts() uint64 {
	switch {
	case w.in(bpf.BalancerFlowStateFLOW_LINGERING):
		return 0
	case w.hasEnded():
		return connectionHasEnded
	}
	return connectionActive
}

// halves splits connections into active and ended ones. Either may be negative.
func halves(connections uint64) [2]int64 {
	ended := int64(int32(connections))
	return [2]int64{(int64(connections) - ended) / connectionActive, ended}
}

// drift returns the correction of a connection count, given a count that took place
// between the readings before and after. A difference that may result from flows that
// started or ended meanwhile is not corrected.
func drift(before, counted, after uint64) (lacks uint64) {
	b, c, a := halves(before), halves(counted), halves(after)
	for i, unit := range [...]uint64{connectionActive, connectionHasEnded} {
		is := min(max(c[i], min(b[i], a[i])), max(b[i], a[i]))
		lacks += uint64(c[i]-is) * unit
	}
	return lacks
}

// void reports whether a flow belongs to a server removed before the sweep began. A
// server added since has a younger generation, and its flows stay.
func (c *recount) void(w flowWord) bool {
	id := w.server()
	if int(id) >= len(c.owners) {
		return true
	}
	younger := (w.generation() - c.generations[id]) & generationMask
	return younger > generationReach || younger == 0 && c.owners[id] == 0
}

// endSweep corrects wrong counts, except for an id with a new owner. Earlier owners than
// those at the start of the sweep have no flows left: no packet that knew one of them was
// still in flight (grace).
func (d *DataPlane) endSweep(c *recount) {
	if d.flows.overtaken.Load() != c.overtaken {
		return
	}
	now := d.owners()
	for id := range c.counted {
		if c.owners[id] == now[id] {
			after := atomic.LoadUint64(&d.flows.connections[id])
			atomic.AddUint64(&d.flows.connections[id], drift(c.before[id], c.counted[id], after))
		}
	}
	d.flows.swept, d.flows.opening = c.generations, c.opening
}

// makeGenerations ensures that flows of an id's previous owners can be distinguished from
// those of the next one despite the few bits in a word: it sweeps if there have been too
// many owners since the last sweep. A concurrent sweep could not distinguish them either,
// and ends.
func (d *DataPlane) makeGenerations(fresh []*server) {
	t := &d.flows
	for _, s := range fresh {
		if d.servers.generations[s.id]+1-t.swept[s.id] > generationReach {
			t.overtaken.Add(1)
			c := d.beginSweep()
			t.sweep(c, flowNow())
			d.endSweep(c)
			return
		}
	}
}

// setsAtOnce is the number of sets read per lock: 256 KB.
const setsAtOnce = 2048

// EachFlow returns the tracked flows that match a query, in no order, one part of the
// table at a time. Opening flows are included only with nat and fullnat: otherwise the
// table does not know their addresses yet. It may be called from any goroutine.
// Concurrent changes may be missed. An error ends it.
func (d *DataPlane) EachFlow(q dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		from := -setsAtOnce
		q.Give(yield, func() ([]dataplane.Flow, bool, error) {
			from += setsAtOnce
			return d.someFlows(q, from)
		})
	}
}

// someFlows reads the sets starting with one, and reports whether there are more.
func (d *DataPlane) someFlows(q dataplane.FlowQuery, from int) (found []dataplane.Flow, more bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.flows
	if t.sets == nil {
		return nil, false, errors.New("xdp: flows: the data plane is closed")
	}
	now, owners := flowNow(), d.owners()
	to := min(from+setsAtOnce, len(t.sets))
	for i := from; i < to; i++ {
		for j := range t.sets[i].Way {
			e := &t.sets[i].Way[j]
			tag, w := tagOf(&e.Tag), flowWord(atomic.LoadUint64(&e.Word))
			if tag == 0 || !w.isFlow() || !w.described() || int32(w.expires()-now) <= 0 {
				continue
			}
			data := t.data[i*flowWays+j]
			loadsInOrder()
			if id := w.server(); tagOf(&e.Tag) != tag || int(id) >= len(owners) || owners[id] != w.generation()+1 {
				continue
			}
			if f := d.flowOf(w, data, now); q.Takes(f) {
				found = append(found, f)
			}
		}
	}
	return found, to < len(t.sets), nil
}

func (d *DataPlane) flowOf(w flowWord, data bpf.BalancerFlowData, now uint32) dataplane.Flow {
	f := dataplane.Flow{
		Client:   netip.AddrPortFrom(entry.FromAddr(data.Client), netorder.Port(data.ClientPort)),
		VIP:      netip.AddrPortFrom(entry.FromAddr(data.Vip), netorder.Port(data.VipPort)),
		Protocol: service.Protocol(data.Egress >> 24 &^ flowProxied),
		Server:   d.servers.addrOf(w.server()),
		State:    d.flows.states[w.state()],
		Idle:     time.Duration(d.flows.lives[w.state()]-(w.expires()-now)) << flowTickShift,
	}
	if data.NatPort != 0 {
		own := d.config.SourceV4
		if !f.Client.Addr().Is4() {
			own = d.config.SourceV6
		}
		f.Source = netip.AddrPortFrom(own, netorder.Port(data.NatPort))
	}
	return f
}

// finishingIdle is the number of ticks without a packet after which a flow that started
// to end is considered ended. A timeout may lag behind the flow's last packet
// (FLOW_RENEW).
const finishingIdle = 8

// Remembered counts the live flows. Those that have started to end count as long as
// packets arrive. It may be called from any goroutine.
func (d *DataPlane) Remembered() (flows int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.flows
	if t.sets == nil {
		return 0, errors.New("xdp: flows: the data plane is closed")
	}
	now := flowNow()
	for i := range t.sets {
		for j := range t.sets[i].Way {
			e := &t.sets[i].Way[j]
			tag, w := tagOf(&e.Tag), flowWord(atomic.LoadUint64(&e.Word))
			left := int32(w.expires() - now)
			switch {
			case tag == 0 || !w.isFlow() || left <= 0 || w.in(bpf.BalancerFlowStateFLOW_CLOSED):
			case w.hasEnded() && int32(t.lives[w.state()])-left > finishingIdle:
			default:
				flows++
			}
		}
	}
	return flows, nil
}
