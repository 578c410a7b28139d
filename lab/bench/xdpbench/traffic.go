package xdpbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
)

// Traffic is what other benchmarks send through a rig: TCP packets from clients in
// 11.0.0.0/8 to port 80 of VIPs.
type Traffic struct {
	Flows     uint64 // a power of two; 0: every packet starts a new flow
	VIPs      int
	Elsewhere bool // to other addresses, which are no VIPs
}

// The packets that a rig sends, and the bare load balancers that it can run.
const (
	FrameBytes = 80
	TableSize  = tableSize // the number of flows in the table of FloorFlows
	ManyVIPs   = manyVIPs  // the maximum
	WideRing   = wideRing  // the Maglev table size of each of them, with a hundred backends
	// BareBackends is how many backends the bare load balancers have.
	BareBackends = bareServers
	RingSize     = ringSize // the Maglev table size of a single VIP

	FloorTX    = floorTX
	FloorParse = floorParse
	FloorBare  = floorBare
	FloorRings = floorRings
	FloorFlows = floorFlows
)

// VIP returns the i-th VIP of the traffic.
func VIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(firstVIP+i))))
}

// Backend returns the i-th backend, a superset of those of the bare load balancers.
func Backend(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(firstBackend+i))))
}

// Send sets the traffic of the next runs.
func (r *Rig) Send(t Traffic) (err error) {
	s := subject{method: service.Tunnel, elsewhere: t.Elsewhere}
	turn := r.state.Turn
	r.state, err = s.state(load{flows: t.Flows, vips: t.VIPs})
	r.state.Turn = turn // so that new flows are new again
	return err
}

// Verdicts returns how often the program has returned each verdict since the last Send.
func (r *Rig) Verdicts() [8]uint64 { return r.state.Verdicts }

// Frame sends a few packets, and returns what the program has made of the last one.
func (r *Rig) Frame() ([]byte, error) {
	if err := r.bench.Put(uint32(0), &r.state); err != nil {
		return nil, err
	}
	opts := ebpf.RunOptions{
		Data: make([]byte, FrameBytes), DataOut: make([]byte, 4*FrameBytes), Repeat: 1,
		Context: xdpMD{DataEnd: FrameBytes, IngressIfindex: r.nic},
	}
	if _, err := r.harness.Run(&opts); err != nil {
		return nil, err
	}
	return opts.DataOut, r.bench.Lookup(uint32(0), &r.state)
}

// Instructions returns the number of instructions in the kernel, including the harness's.
func (r *Rig) Instructions() (int, error) {
	info, err := r.harness.Info()
	if err != nil {
		return 0, err
	}
	bytes, err := info.TranslatedSize()
	return bytes / 8, err
}

// ForeignRig returns a rig with a peer's program, on maps that are already filled. Those
// that are missing are created empty.
func ForeignRig(spec *ebpf.CollectionSpec, program string, filled map[string]*ebpf.Map, nic int) (*Rig, error) {
	if spec.Programs[program] == nil {
		return nil, fmt.Errorf("no program %s: is the source of another version?", program)
	}
	all, err := harnessWith(spec)
	if err != nil {
		return nil, err
	}
	r, err := newRig(all, all.Programs[program], ebpf.CollectionOptions{MapReplacements: filled}, nic)
	if err != nil {
		return nil, errors.Join(errors.New("the kernel rejects it"), err)
	}
	return r, nil
}
