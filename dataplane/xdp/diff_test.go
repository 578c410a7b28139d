package xdp

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/alloc"
)

// planner has the memory that layOut needs, and no kernel.
func planner() *DataPlane {
	none := func() error { return nil }
	return &DataPlane{ids: alloc.NewPool("frontends", 0, 2, none), servers: newServerTable(4, none)}
}

// The numbers of a frontend and what a change adds, without a kernel.
func TestLayOutAndDiff(t *testing.T) {
	before := frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80", "172.16.5.2:80")
	with := func(change func(*desired.Frontend)) desired.Frontend {
		f := before
		f.Backends = append([]service.Backend(nil), f.Backends...)
		change(&f)
		return f
	}
	third := service.Backend{Addr: netip.MustParseAddrPort("172.16.5.3:80"), Weight: 1}
	for name, c := range map[string]struct {
		next            desired.Frontend
		fresh, released int
		entryStays      bool
	}{
		"nothing":      {before, 0, 0, true},
		"a backend":    {with(func(f *desired.Frontend) { f.Backends = append(f.Backends, third) }), 1, 0, true},
		"without one":  {with(func(f *desired.Frontend) { f.Backends = f.Backends[:1] }), 0, 1, true},
		"another":      {with(func(f *desired.Frontend) { f.Backends[0] = third }), 1, 1, true},
		"a weight":     {with(func(f *desired.Frontend) { f.Backends[1].Weight = 0 }), 0, 0, true},
		"the method":   {with(func(f *desired.Frontend) { f.Method = service.DSRNAT }), 0, 0, false},
		"the ring":     {with(func(f *desired.Frontend) { f.RingSize = 509 }), 0, 0, false},
		"flow table":   {with(func(f *desired.Frontend) { f.Survival = service.FlowTable }), 2, 2, false},
		"with v4-in-6": {with(func(f *desired.Frontend) { f.Backends[0].Addr = netip.MustParseAddrPort("[::ffff:172.16.5.1]:80") }), 0, 0, true},
	} {
		d := planner()
		was, err := d.layOut(before, nil)
		must(t, err)
		if first := diff(nil, was); first.entryStays || len(first.fresh) != 2 {
			t.Fatalf("%s: a new frontend: %+v", name, first)
		}
		next, err := d.layOut(c.next, was)
		must(t, err)
		got := diff(was, next)
		if len(got.fresh) != c.fresh || got.entryStays != c.entryStays || next.value.Id != was.value.Id {
			t.Errorf("%s: %d fresh, entry stays: %v, id %d", name, len(got.fresh), got.entryStays, next.value.Id)
		}
		released := 0
		for _, m := range was.members {
			if d.servers.release(m.server) {
				released++
			}
		}
		if released != c.released {
			t.Errorf("%s: %d servers released, want %d", name, released, c.released)
		}
	}
}

// A plan that fails leaves all numbers as they were.
func TestAbandonedPlanTakesNothing(t *testing.T) {
	d := planner()
	was, err := d.layOut(frontend(service.Tunnel, vips[false], service.TCP, "172.16.5.1:80"), nil)
	must(t, err)
	taken := func() string {
		return fmt.Sprint(len(d.servers.byID), len(d.servers.byKey), was.members[0].server.members)
	}
	before := taken()
	for _, c := range []struct {
		vip    string
		before *programmed
	}{{vips[false], was}, {"10.1.1.9:80", nil}} {
		many := frontend(service.Tunnel, c.vip, service.TCP, "172.16.5.1:80", "172.16.5.2:80", "172.16.5.3:80", "172.16.5.4:80", "172.16.5.5:80")
		after, err := d.layOut(many, c.before)
		if err == nil {
			t.Fatalf("%s: five servers of four were taken", c.vip)
		}
		d.abandon(diff(c.before, after))
		if now := taken(); now != before {
			t.Errorf("%s: %s taken, before %s", c.vip, now, before)
		}
		d.ids.Wake()
		d.servers.numbers.Wake()
	}
	if id, err := d.ids.Take(); err != nil || id != 1 {
		t.Errorf("the next id is %d, %v", id, err)
	}
}
