package selection_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/source"
)

func TestParseIsTheInverseOfValues(t *testing.T) {
	for _, s := range []selection.Selection{
		{},
		{Tables: true},
		{Node: true},
		{Node: true, Problems: true},
		{Services: []string{"web", "default/dns"}, Backends: []string{"172.16.1.10:80", "web-1"}},
		{Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::1")}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
	} {
		got, err := selection.Parse(s.Values())
		if diff := cmp.Diff(s, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); err != nil || diff != "" {
			t.Errorf("%v, %s", err, diff)
		}
	}
	for _, wrong := range []map[string][]string{{"address": {"x"}}, {"prefix": {"10.1.1.1"}}} {
		if _, err := selection.Parse(wrong); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}

// vip returns the address of the i-th Service.
func vip(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }

// view is that of a loop with many Services of two backends each.
func view(services int) *reconciler.View {
	all := make([]*service.Service, services)
	v := &reconciler.View{Held: map[service.Key]desired.Frontend{}, Failures: map[string]error{"announcer": errors.New("no")}}
	for i := range all {
		key := service.Key{VIP: vip(i), Port: 80, Protocol: service.TCP}
		name := fmt.Sprintf("web-%d", i)
		all[i] = &service.Service{
			ID: service.ID{Namespace: "default", Name: name}, Method: service.Tunnel, Scheduler: service.Maglev, RingSize: 251, Panic: true,
			Frontends: []service.Frontend{{Key: key, Backends: []service.Backend{
				{Addr: netip.AddrPortFrom(vip(i), 8080), Weight: 1, Name: name + "-a"}, {Addr: netip.AddrPortFrom(vip(i), 8081), Weight: 1},
			}}},
		}
		v.Problems = append(v.Problems, problem.Problem{Object: "Service default/" + name, Message: "no"}, problem.Problem{Object: "EndpointSlice default/" + name + "-x", Message: "no"})
		v.Stale = append(v.Stale, source.Stale{Object: "Service default/" + name, Service: "default/" + name, Since: time.Unix(1, 0)})
		v.Failures[key.String()] = errors.New("no")
		v.Failures[fmt.Sprintf("route %s/32", vip(i))] = errors.New("no")
		v.Withdrawing = append(v.Withdrawing, advertise.Withdrawal{Prefix: netip.PrefixFrom(vip(i), 32)})
	}
	v.Plan = plan.Build(plan.Input{Services: all, Node: plan.Node{NextHop4: netip.MustParseAddr("192.0.2.1")}, Health: func(health.Target) health.State { return health.Up }})
	return v
}

// TestNarrow selects one Service among others by each of its names.
func TestNarrow(t *testing.T) {
	all := view(40)
	prefix := netip.PrefixFrom(vip(7), 32)
	for name, s := range map[string]selection.Selection{
		"name":              {Services: []string{"web-7"}},
		"qualified name":    {Services: []string{"default/web-7"}},
		"backend":           {Backends: []string{vip(7).String()}},
		"backend's port":    {Backends: []string{netip.AddrPortFrom(vip(7), 8081).String()}},
		"name of a backend": {Backends: []string{"web-7-a"}},
		"address":           {Addresses: []netip.Addr{vip(7)}},
		"prefix":            {Prefixes: []netip.Prefix{prefix}},
	} {
		v := s.Narrow(all)
		if len(v.Plan.Frontends) != 1 || v.Plan.Frontends[0].Key.VIP != vip(7) || len(v.Plan.Routes) != 1 || v.Plan.Routes[0].Prefix != prefix {
			t.Errorf("%s: frontends %v, routes %v", name, v.Plan.Frontends, v.Plan.Routes)
		}
		if len(v.Problems) != 2 || len(v.Stale) != 1 || len(v.Withdrawing) != 1 || len(v.Failures) != 3 || v.Failures["announcer"] == nil {
			t.Errorf("%s: problems %v, stale %v, withdrawing %v, failures %v", name, v.Problems, v.Stale, v.Withdrawing, v.Failures)
		}
	}
	v := selection.Selection{Problems: true}.Narrow(all)
	if len(v.Plan.Frontends)+len(v.Plan.Routes) > 0 || len(v.Problems) != len(all.Problems) || len(v.Stale) != 40 || len(v.Withdrawing) != len(all.Withdrawing) || len(v.Failures) != len(all.Failures) {
		t.Errorf("problems: %d frontends, %d routes, %d problems, %d stale", len(v.Plan.Frontends), len(v.Plan.Routes), len(v.Problems), len(v.Stale))
	}
	if v := (selection.Selection{}).Narrow(all); v != all {
		t.Error("nothing selected: the view is another one")
	}
	if n := len(all.Plan.Frontends); n != 40 || len(all.Problems) != 80 {
		t.Errorf("the view itself has changed: %d frontends, %d problems", n, len(all.Problems))
	}
}

// What is not there is not selected, except problems of that name.
func TestNarrowToNothing(t *testing.T) {
	all := view(3)
	all.Problems = append(all.Problems, problem.Problem{Object: "Service default/late", Message: "no"}, problem.Problem{Object: "data plane", Message: "no"})
	v := selection.Selection{Services: []string{"late"}}.Narrow(all)
	if len(v.Plan.Frontends)+len(v.Plan.Routes)+len(v.Stale) > 0 || len(v.Problems) != 2 || v.Problems[0].Object != "Service default/late" {
		t.Errorf("%+v, %v", v.Plan, v.Problems)
	}
}

// The node alone is without all that there may be very many of.
func TestNarrowToTheNode(t *testing.T) {
	all := view(3)
	all.Problems = append(all.Problems, problem.Problem{Object: "data plane", Message: "no"})
	v := selection.Selection{Node: true}.Narrow(all)
	if len(v.Plan.Frontends)+len(v.Plan.Routes)+len(v.Stale) > 0 || len(v.Problems) != 1 || v.Failures["announcer"] == nil || len(v.Withdrawing) != 3 {
		t.Errorf("%+v, %v, %v", v.Plan, v.Problems, v.Failures)
	}
}

// A prefix that leads to all Services selects a few of them.
func TestWidePrefix(t *testing.T) {
	v := selection.Selection{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}.Narrow(view(200))
	if n := len(v.Plan.Frontends); n != selection.MaxOrigins {
		t.Errorf("%d frontends", n)
	}
	if !slices.IsSortedFunc(v.Plan.Frontends, func(a, b plan.Frontend) int { return a.Key.Compare(b.Key) }) {
		t.Error("the frontends are not sorted")
	}
}

// BenchmarkNarrow selects one of 50,000 Services.
func BenchmarkNarrow(b *testing.B) {
	all := view(50000)
	for name, s := range map[string]selection.Selection{
		"service": {Services: []string{"web-40000"}}, "backend": {Backends: []string{vip(40000).String()}}, "address": {Addresses: []netip.Addr{vip(40000)}},
		"prefix": {Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Narrow(all)
			}
		})
	}
}
