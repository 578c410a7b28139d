package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// idsOf returns the numbers of a frontend's servers.
func idsOf(d *DataPlane, k service.Key) (ids []uint32) {
	for _, m := range d.programmed[k].members {
		ids = append(ids, m.id)
	}
	return ids
}

func (n *testNet) reopen(t *testing.T, d *DataPlane) *DataPlane {
	t.Helper()
	must(t, d.Close())
	return n.open(t, d.config)
}

// Stateless frontends share servers. One with flow tracking has separate ones.
func TestServersAreShared(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	backends := []string{"172.16.5.1:80", "172.16.5.2:80"}
	first := frontend(service.Tunnel, "10.1.1.1:80", service.TCP, backends...)
	second := frontend(service.DSRNAT, "10.1.1.2:80", service.UDP, append(backends, "172.16.5.3:80")...)
	own := frontend(service.Tunnel, "10.1.1.3:80", service.TCP, backends...)
	own.Survival = service.FlowTable
	for _, f := range []desired.Frontend{first, second, own} {
		upsert(t, d, f)
	}
	shared, mine := idsOf(d, first.Key), idsOf(d, own.Key)
	if !slices.Equal(shared, idsOf(d, second.Key)[:2]) || slices.Contains(mine, shared[0]) || slices.Contains(mine, shared[1]) {
		t.Errorf("numbers are %v, %v, %v", shared, idsOf(d, second.Key), mine)
	}
	inUse := func(want int) {
		t.Helper()
		table, err := d.readServers()
		must(t, err)
		if len(table.byID) != want {
			t.Errorf("%d servers in use, want %d", len(table.byID), want)
		}
	}
	inUse(5)
	d = n.reopen(t, d)
	if got := idsOf(d, first.Key); !slices.Equal(got, shared) {
		t.Errorf("a successor has %v, not %v", got, shared)
	}
	must(t, d.Delete(first.Key))
	inUse(5)
	second.Backends = second.Backends[1:]
	upsert(t, d, second)
	inUse(4)
	// Becoming stateful, and stateless again.
	before := idsOf(d, second.Key)
	second.Affinity = time.Hour
	upsert(t, d, second)
	inUse(4)
	if now := idsOf(d, second.Key); now[0] == before[0] {
		t.Errorf("still shares %v", now)
	}
	second.Affinity = 0
	upsert(t, d, second)
	inUse(4)
	must(t, d.Delete(second.Key))
	must(t, d.Delete(own.Key))
	inUse(0)
}

// A released number gets another owner only after a grace period, and with a new
// generation.
func TestNumbersRest(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxBackends = 2
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80")
	upsert(t, d, f)
	first := d.programmed[f.Key].members[0].id
	generation := d.servers.generations[first]
	f.Backends[0].Addr = netip.MustParseAddrPort("172.16.5.2:80")
	upsert(t, d, f)
	if second := d.programmed[f.Key].members[0].id; second == first {
		t.Error("the number has a new owner at once")
	}
	var left bpf.BalancerServer
	must(t, d.kernel.Servers.Lookup(first, &left))
	if left.Used != 0 || entry.FromAddr(left.Addr) != netip.MustParseAddr("172.16.5.1") {
		t.Errorf("the old owner is %+v", left)
	}
	f.Backends[0].Addr = netip.MustParseAddrPort("172.16.5.3:80")
	upsert(t, d, f)
	if third := d.programmed[f.Key].members[0].id; third != first || d.servers.generations[third] != generation+1 {
		t.Errorf("number %d, generation %d", third, d.servers.generations[third])
	}
}

// If only servers change, the ring stays in place, and only changed slots are written.
func TestRingIsChangedInPlace(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.Tunnel, vips[false], service.TCP)
	for i := range 20 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 5, byte(i + 1)}), 80)
		f.Backends = append(f.Backends, service.Backend{Addr: addr, Weight: 1})
	}
	f.RingSize = 1021
	upsert(t, d, f)
	was, slots := d.programmed[f.Key].value, d.rings.Slots(d.programmed[f.Key].ring())
	f.Backends[7].Addr = netip.MustParseAddrPort("172.16.5.200:80")
	f.Backends = service.SortBackends(f.Backends)
	upsert(t, d, f)
	if now := d.programmed[f.Key].value; now != was {
		t.Errorf("the entry is %+v, was %+v", now, was)
	}
	changed := 0
	for i, s := range d.rings.Slots(d.programmed[f.Key].ring()) {
		if s != slots[i] {
			changed++
		}
	}
	if changed < 20 || changed > 300 {
		t.Errorf("%d of %d slots changed for one server of 20", changed, len(slots))
	}
	f.Backends[3].Weight = 0
	upsert(t, d, f)
	before := ringsByAddress(t, d)
	d = n.reopen(t, d)
	if after := ringsByAddress(t, d); after != before {
		t.Error("a successor reads another ring")
	}
	upsert(t, d, f)
	if after := ringsByAddress(t, d); after != before {
		t.Error("asked for again, it is another ring")
	}
}

// Segments are created when rings need them, and freed.
func TestSegmentsComeAndGo(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	big := func(i int) desired.Frontend {
		f := frontend(service.Tunnel, fmt.Sprintf("10.1.1.%d:80", i), service.TCP, fmt.Sprintf("172.16.5.%d:80", i+1))
		f.RingSize = 131071
		return f
	}
	for i := range 5 {
		upsert(t, d, big(i))
	}
	if got := segmentsOf(d); got != 3 {
		t.Errorf("%d segments for five rings that are half of one", got)
	}
	d = n.reopen(t, d)
	if got := segmentsOf(d); got != 3 || takenSlots(d) != 5*131071 {
		t.Errorf("a successor has %d segments and %d slots taken", got, takenSlots(d))
	}
	for i := range 5 {
		must(t, d.Delete(big(i).Key))
	}
	if takenSlots(d) != 0 || segmentsOf(d) != 3 {
		t.Errorf("%d slots taken, %d segments", takenSlots(d), segmentsOf(d))
	}
	must(t, d.grace())
	if got := segmentsOf(d); got != 1 {
		t.Errorf("%d segments for nothing", got)
	}
	upsert(t, d, big(9))
	f := big(9)
	f.RingSize = d.rings.MaxSlots() + 1
	if err := d.Upsert(f); err == nil {
		t.Error("a ring larger than a segment was taken")
	}
}

func segmentsOf(d *DataPlane) int {
	segments, _ := d.rings.Usage()
	return segments
}

// Frontends with the same backends share a ring until one of them has others. Its packets then
// use the new ring, and those of the others the old one, also after a restart.
func TestFrontendsShareRings(t *testing.T) {
	t.Run("wide", func(t *testing.T) { frontendsShareRings(t, config(), 251) })
	c := config()
	c.WideRings = 1
	t.Run("narrow", func(t *testing.T) { frontendsShareRings(t, c, 40) })
}

func frontendsShareRings(t *testing.T, c Config, most uint32) {
	n := newNet(t)
	d := n.open(t, c)
	backends := []string{"172.16.5.1:80", "172.16.5.2:80", "172.16.5.3:80"}
	all := []desired.Frontend{frontend(service.Tunnel, vips[false], service.TCP, backends...)}
	for i := range 3 {
		all = append(all, frontend(service.Tunnel, fmt.Sprintf("10.2.2.%d:80", i+1), service.TCP, backends...))
	}
	set := func(rings uint32, which ...int) {
		t.Helper()
		for _, i := range which {
			upsert(t, d, all[i])
		}
		if got := takenSlots(d); got > rings*most || got <= (rings-1)*most {
			t.Errorf("%d slots are in use, want those of %d rings", got, rings)
		}
	}
	set(1, 0, 1, 2, 3)
	went := where(t, n, d)
	for i := range all[1:] {
		all[1+i].Backends = all[1+i].Backends[:2]
	}
	set(2, 1)
	set(2, 2, 3)
	if where(t, n, d) != went {
		t.Error("packets of the frontend that did not change go elsewhere")
	}
	d = n.reopen(t, d)
	set(2, 1, 2, 3)
	all[0].Backends = all[0].Backends[:2]
	set(2, 0) // it has another history than the others
	if where(t, n, d) == went {
		t.Error("packets of the frontend that changed last go where they went")
	}
	must(t, d.Delete(all[1].Key))
	must(t, d.Delete(all[2].Key))
	set(2, 0)
	must(t, d.Delete(all[3].Key))
	must(t, d.Delete(all[0].Key))
	if got := takenSlots(d); got != 0 {
		t.Errorf("%d slots are in use", got)
	}
}
