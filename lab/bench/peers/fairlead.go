package peers

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
)

// ours loads the load balancer twice: with second chance, and with a flow table.
func (m *meter) ours(ctx context.Context, s scenario, _ *xdpbench.Network) (all []*program, err error) {
	for i, survival := range []service.Survival{service.SecondChance, service.FlowTable} {
		p := &program{name: secondChance, in: m.networks[i].Balancer, ours: true}
		if survival == service.FlowTable {
			p.name, p.table = flowTable, true
		}
		all = append(all, p)
		if err := p.balance(ctx, m.networks[i], s, survival); err != nil {
			return all, err
		}
	}
	return all, nil
}

// balance opens a data plane with the frontends of a scenario.
func (p *program) balance(ctx context.Context, n *xdpbench.Network, s scenario, survival service.Survival) error {
	members := s.vips * s.backends
	c := xdp.Config{MaxFrontends: 16384, MaxBackends: 16384, MaxFlows: s.size.flowTable}
	if p.table { // which counts a backend once per frontend
		c.MaxBackends = max(c.MaxBackends, members+members/50)
	}
	d, err := n.Open(c)
	if err != nil {
		return err
	}
	p.open = append(p.open, d)
	all := make([]desired.Frontend, s.vips)
	for i := range all {
		all[i] = s.frontend(i, survival, 0)
	}
	began := time.Now()
	if err := d.Reserve(all); err != nil { // as the agent does
		return err
	}
	for _, f := range all {
		if err := errors.Join(ctx.Err(), d.Upsert(f)); err != nil {
			return err
		}
	}
	filled := time.Since(began)
	rig, err := xdpbench.BalancerRig(d.DataPlane, n.NIC)
	if err != nil {
		return err
	}
	p.rig, p.open = rig, append(p.open, rig)
	p.begun = func() (sum uint64, err error) {
		all, err := d.Counters()
		for _, c := range all {
			sum += c.Total.Flows
		}
		return sum, err
	}
	without := make([]int, s.vips)
	_, pins, err := d.Programs()
	p.cost = &cost{
		filled: filled, note: "announced together and written one by one, with the calculation of the Maglev tables",
		tables: func() (uint64, error) { return pinnedMemory(pins, tablesOfVIPs) },
		flows:  func() (uint64, error) { return pinnedMemory(pins, tablesOfFlows) },
		change: func(i int) error { // the first backend goes, or returns
			without[i] ^= 1
			return d.Upsert(s.frontend(i, survival, without[i]))
		},
	}
	return err
}

// frontend returns the i-th frontend without its first backends.
func (s scenario) frontend(i int, survival service.Survival, without int) desired.Frontend {
	f := desired.Frontend{
		Key:    service.Key{VIP: xdpbench.VIP(i), Port: 80, Protocol: service.TCP},
		Method: service.Tunnel, Scheduler: service.Maglev, Survival: survival, RingSize: xdpbench.RingSize,
	}
	if s.vips > 1 {
		f.RingSize = xdpbench.WideRing
	}
	for _, n := range s.backendsOf(i)[without:] {
		f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(xdpbench.Backend(n), 8080), Weight: 1})
	}
	f.Backends = service.SortBackends(f.Backends)
	return f
}

// The tables that the load balancer's packets read: of VIPs and backends, and of flows.
var (
	tablesOfVIPs  = []string{"frontends", "frontend_counts", "vip_bits", "rings", "older_owners", "chains", "servers", "server_cpu", "members", "member_index", "member_lists"}
	tablesOfFlows = []string{"flows", "flow_data", "flow_back", "connections"}
)

// pinnedMemory returns the kernel memory of pinned maps of any version, with the maps in
// them. Maps that do not exist have none.
func pinnedMemory(pins string, names []string) (sum uint64, err error) {
	var paths []string
	for _, name := range names {
		for _, pattern := range []string{name, name + "-[0-9]*"} { // a layout with a version
			found, err := filepath.Glob(filepath.Join(pins, pattern))
			if err != nil {
				return 0, err
			}
			paths = append(paths, found...)
		}
	}
	for _, path := range paths {
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return 0, err
		}
		bytes, err := memory(m)
		if err := errors.Join(err, m.Close()); err != nil {
			return 0, err
		}
		sum += bytes
	}
	if names[0] != tablesOfVIPs[0] {
		return sum, nil
	}
	for _, name := range []string{"rings", "member_lists"} {
		segments, err := xdpbench.Segments(pins, name)
		if err != nil {
			return 0, err
		}
		bytes, err := memory(segments...)
		if err := errors.Join(err, xdpbench.CloseAll(segments)); err != nil {
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}

// memory returns the kernel memory of maps.
func memory(all ...*ebpf.Map) (sum uint64, err error) {
	for _, m := range all {
		info, err := m.Info()
		if err != nil {
			return 0, err
		}
		bytes, ok := info.Memlock()
		if !ok {
			return 0, errors.New("the kernel does not report the memory of maps")
		}
		sum += bytes
	}
	return sum, nil
}
