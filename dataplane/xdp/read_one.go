package xdp

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/lookup"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
)

var _ dataplane.Reader = (*DataPlane)(nil)

// Read implements dataplane.Reader. Everything is read from the kernel, except which
// numbers the backends have.
func (d *DataPlane) Read(k service.Key) (*dataplane.Programmed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.programmed[k]
	if h == nil {
		return nil, nil
	}
	v, err := lookup.Frontend(d.kernel.Frontends, d.kernel.PortRanges, k)
	if err != nil || v.Method == bpf.BalancerMethodMETHOD_NONE {
		return nil, err
	}
	p := &dataplane.Programmed{Owned: map[netip.AddrPort]int{}}
	if p.Frontend, err = d.readProgrammed(&programmed{key: k, value: v}); err != nil {
		return nil, fmt.Errorf("xdp: %s: %w", k, err)
	}
	if p.Counters, err = d.countersOf(k, h, map[uint32]dataplane.Counts{}); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	var owned map[uint32]int
	p.Slots, owned, p.Digest = d.rings.Owned(ringmap.Ring{Entry: v, Protocol: k.Protocol}, d.servers.addrOf)
	for id, n := range owned {
		if addr := d.servers.addrOf(id); addr.IsValid() {
			p.Owned[addr] = n
		}
	}
	return p, nil
}

// readProgrammed returns a frontend with those of its members that the kernel has.
func (d *DataPlane) readProgrammed(h *programmed) (desired.Frontend, error) {
	f, err := d.requested(h)
	if err != nil {
		return f, err
	}
	f.Backends = d.readBackends(h.value.Id, &d.servers)
	return f, nil
}
