package xdp

import (
	"net/netip"
	"sync/atomic"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// natBit returns the bit of an address in the bitmap of nat backends: may_be_nat_server
// in bpf/balancer/nat.h.
func (t *flowTable) natBit(a netip.Addr) (word int, bit uint64) {
	hash := schedule.AddrHash(a)
	return int(hash>>6) % len(t.nat), 1 << (hash & 63)
}

// admitNAT makes the program check packets from a frontend's backends for replies to
// translate. Bits are cleared only when no nat backends are left: an extra bit only costs
// a lookup.
func (d *DataPlane) admitNAT(h *programmed) {
	if h.value.Method != bpf.BalancerMethodMETHOD_NAT {
		return
	}
	for _, m := range h.members {
		word, bit := d.flows.natBit(m.key.addr.Addr())
		atomic.OrUint64(&d.flows.nat[word], bit)
	}
}
