package xdp

import (
	"net/netip"
	"sync/atomic"

	"github.com/fairlead/fairlead/core/schedule"
)

// natBit gives the place of an address among the bits of nat's servers:
// may_be_nat_server in bpf/balancer/nat.h.
func (t *flowTable) natBit(a netip.Addr) (word int, bit uint64) {
	hash := schedule.AddrHash(a)
	return int(hash>>6) % len(t.nat), 1 << (hash & 63)
}

// admitNAT lets the program look at packets from a frontend's servers, if they
// are answers for it to translate. Who is a server no more keeps its bit until
// none is: a bit too many only costs a look-up.
func (d *DataPlane) admitNAT(h *held) {
	if h.value.Method != balancerMethodMETHOD_NAT {
		return
	}
	for _, m := range h.members {
		word, bit := d.flows.natBit(m.key.addr.Addr())
		atomic.OrUint64(&d.flows.nat[word], bit)
	}
}
