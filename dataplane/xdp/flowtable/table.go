// Package flowtable is the kernel's table of flows, seen from user space: it sweeps expired
// flows, counts connections and lists flows. Packets make and change flows, in
// bpf/balancer/flow.h. It does not know frontends or servers, only servers' numbers and
// generations. Arithmetic is tested here, everything else with the program in dataplane/xdp.
package flowtable

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Table is the kernel's flow table. Changing a tag requires the set's lock, which
// user space never takes, because it would delay packets. It changes only words.
type Table struct {
	// The kernel's memory: entries, their data, and connections by server. Do not write.
	Sets        []bpf.BalancerFlowSet
	Data        []bpf.BalancerFlowData
	Connections []uint64
	// Recent are copies of words: bpf/balancer/flow_recent.h.
	Recent []bpf.BalancerFlowRecent
	// States are the names of a flow's states.
	States []string

	nat       []uint64 // bits: NAT_BITS_WORDS in bpf/balancer/nat.h
	lives     [16]uint32
	swept     []uint32      // by server: no flows are left from before this generation
	overtaken atomic.Uint64 // counts sweeps that make a concurrent one void
	opening   int           // flows that were not established, at the last sweep
	crowded   bool          // at the last sweep
}

// Open opens the kernel's flow table, and generates its secret if it has none.
func (t *Table) Open(spec *ebpf.CollectionSpec, maps *bpf.BalancerMaps) (err error) {
	if err := spec.Variables[bpf.BalancerVarFlowLives].Get(&t.lives); err != nil {
		return fmt.Errorf("xdp: flow table: %w", err)
	}
	if t.States, err = bpf.EnumNames(spec, "flow_state", "FLOW_", len(t.lives)); err != nil {
		return err
	}
	if t.Sets, err = bpf.MapMemory[bpf.BalancerFlowSet](maps.Flows); err != nil {
		return err
	}
	if t.Data, err = bpf.MapMemory[bpf.BalancerFlowData](maps.FlowData); err != nil {
		return err
	}
	if t.Recent, err = bpf.MapMemory[bpf.BalancerFlowRecent](maps.FlowRecent); err != nil {
		return err
	}
	if t.Connections, err = bpf.MapMemory[uint64](maps.Connections); err != nil {
		return err
	}
	if t.nat, err = bpf.MapMemory[uint64](maps.NatBits); err != nil {
		return err
	}
	t.swept = make([]uint32, len(t.Connections))
	return makeSecret(maps.FlowSecret)
}

// Close closes the table, which stays in the kernel.
func (t *Table) Close() error {
	err := errors.Join(bpf.UnmapMemory(t.Sets), bpf.UnmapMemory(t.Data), bpf.UnmapMemory(t.Connections), bpf.UnmapMemory(t.Recent), bpf.UnmapMemory(t.nat))
	t.Sets, t.Data, t.Connections, t.Recent, t.nat = nil, nil, nil, nil, nil
	return err
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

// Unlock clears the locks that were copied with the table, and the entries that were
// being reassigned at that time.
func (t *Table) Unlock() {
	for i := range t.Sets {
		tag := &t.Sets[i].Way[0].Tag
		atomic.StoreUint64(tag, *tag&^locked)
	}
}

// Opening returns how many flows were not established at the last sweep, and how many flows
// fit.
func (t *Table) Opening() (opening, capacity int) { return t.opening, len(t.Sets) * Ways }

// Crowded reports whether so many flows are in use that most find no room for a copy.
func (t *Table) Crowded() bool { return t.crowded }

// Forget makes a server's number start without connections.
func (t *Table) Forget(id uint32) { atomic.StoreUint64(&t.Connections[id], 0) }

// AdmitNAT makes the program check packets from a backend for replies to translate. Bits are
// never cleared while there are nat backends: an extra bit only costs a lookup.
func (t *Table) AdmitNAT(backend netip.Addr) {
	word, bit := t.natBit(backend)
	atomic.OrUint64(&t.nat[word], bit)
}

// natBit returns the bit of an address in the bitmap of nat backends: may_be_nat_server
// in bpf/balancer/nat.h.
func (t *Table) natBit(a netip.Addr) (word int, bit uint64) {
	hash := schedule.AddrHash(a)
	return int(hash>>6) % len(t.nat), 1 << (hash & 63)
}

// SweepSYN removes the SYN protection's state of connections that no longer exist: their flow is over, or
// its entry was reassigned. A recent one may not be published yet.
func (t *Table) SweepSYN(m *ebpf.Map, now uint32) {
	const young = 5 // ticks
	var gone []uint32
	err := bpf.ReadHash(m, func(index uint32, f bpf.BalancerSynFlow) {
		if int32(now-f.Made) < young {
			return
		}
		set, way := index/Ways, index%Ways
		if int(set) >= len(t.Sets) {
			gone = append(gone, index)
			return
		}
		e := &t.Sets[set].Way[way]
		if tagOf(&e.Tag) != f.Tag || !Word(atomic.LoadUint64(&e.Word)).IsFlow() {
			gone = append(gone, index)
		}
	})
	if err != nil {
		return // retried at the next sweep
	}
	for _, index := range gone {
		if err := m.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return
		}
	}
}
