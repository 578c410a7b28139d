package diff

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

var vip = netip.MustParseAddr("10.1.1.1")

func backend(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 1, byte(i)}), 80)
}

// web returns a frontend with backends 1 to n.
func web(port uint16, n int, change ...func(*desired.Frontend)) desired.Frontend {
	f := desired.Frontend{
		Key: service.Key{VIP: vip, Port: port, Protocol: service.TCP}, Method: service.Tunnel, Encapsulation: service.IPIP,
		Scheduler: service.Maglev, RingSize: 251, Survival: service.SecondChance,
	}
	for i := range n {
		f.Backends = append(f.Backends, service.Backend{Addr: backend(i + 1), Weight: 1})
	}
	for _, do := range change {
		do(&f)
	}
	return f
}

// planOf returns a plan that programs frontends and advertises the VIP.
func planOf(frontends ...desired.Frontend) *plan.Plan {
	p := &plan.Plan{}
	var keys []service.Key
	for _, f := range frontends {
		s := &service.Service{ID: service.ID{Namespace: "default", Name: fmt.Sprint("web", f.Port)}}
		p.Frontends = append(p.Frontends, plan.Frontend{Service: s, Key: f.Key, State: plan.Active, Want: &f})
		keys = append(keys, f.Key)
	}
	if len(keys) > 0 {
		p.Routes = []plan.Route{{Route: advertised, Frontends: keys}}
	}
	return p
}

var advertised = route.Route{Prefix: netip.PrefixFrom(vip, 32), NextHop: netip.MustParseAddr("10.0.0.1")}

// moves is the preview of a data plane that assigns all flows to one backend, with others
// that may know them.
func moves(to ...netip.AddrPort) func(desired.Frontend) (dataplane.Preview, error) {
	return func(desired.Frontend) (dataplane.Preview, error) {
		return dataplane.Preview{Slots: 251, Moved: 0.25, Owners: func(schedule.Flow) []netip.AddrPort { return to }}, nil
	}
}

// flowsTo returns flows of port 80 to backends, one each.
func flowsTo(states []string, to ...int) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		for i, b := range to {
			f := dataplane.Flow{
				Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 4000), VIP: netip.AddrPortFrom(vip, 80),
				Protocol: service.TCP, Server: backend(b), State: states[min(i, len(states)-1)],
			}
			for range 2 { // two agents track it
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}

var established = []string{"established"}

func text(r Report) string {
	var b strings.Builder
	for _, f := range r.Frontends {
		fmt.Fprintf(&b, "%s %s %s", f.Service, f.Frontend, f.Change)
		if f.Reason != "" {
			fmt.Fprintf(&b, " (%s)", f.Reason)
		}
		fmt.Fprintf(&b, " %d\n", f.Connections)
		for _, x := range f.Fields {
			fmt.Fprintf(&b, "  %s %s>%s\n", x.Field, x.From, x.To)
		}
		for _, x := range f.Backends {
			fmt.Fprintf(&b, "  %s %s %s>%s\n", x.Backend, x.Change, x.From, x.To)
		}
		for _, x := range f.AtRisk {
			fmt.Fprintf(&b, "  risk %d %s\n", x.Connections, x.Reason)
		}
	}
	for _, x := range r.Routes {
		fmt.Fprintf(&b, "%s %s %s>%s\n", x.Prefix, x.Change, x.From, x.To)
	}
	return b.String()
}

func TestOf(t *testing.T) {
	hashOnly := func(f *desired.Frontend) { f.Survival = service.HashOnly }
	flowTable := func(f *desired.Frontend) { f.Survival = service.FlowTable }
	const changed = "default/web80 TCP 10.1.1.1:80 changed"
	for _, c := range []struct {
		name          string
		before, after []desired.Frontend
		preview       func(desired.Frontend) (dataplane.Preview, error)
		flows         iter.Seq2[dataplane.Flow, error]
		want          string
	}{
		{"nothing", []desired.Frontend{web(80, 2)}, []desired.Frontend{web(80, 2)}, moves(), flowsTo(established, 1), ""},
		{"a new Service", nil, []desired.Frontend{web(80, 2)}, moves(), nil,
			"default/web80 TCP 10.1.1.1:80 added 0\n  172.16.1.1:80 added >1\n  172.16.1.2:80 added >1\n10.1.1.1/32 added >10.1.1.1/32 via 10.0.0.1\n"},
		{"a removed Service", []desired.Frontend{web(80, 2)}, nil, moves(), flowsTo(established, 1, 2),
			"default/web80 TCP 10.1.1.1:80 removed 2\n  risk 2 frontend deleted\n10.1.1.1/32 removed 10.1.1.1/32 via 10.0.0.1>\n"},
		{"a removed backend", []desired.Frontend{web(80, 3)}, []desired.Frontend{web(80, 2)}, moves(backend(1), backend(2)), flowsTo(established, 1, 2, 3, 3),
			changed + " 4\n  172.16.1.3:80 removed 1>\n  risk 2 backend removed\n"},
		{"of which flows have ended", []desired.Frontend{web(80, 3)}, []desired.Frontend{web(80, 2)}, moves(), flowsTo([]string{"finishing", "closed", "reset", "opening"}, 3, 3, 3, 3),
			changed + " 2\n  172.16.1.3:80 removed 1>\n  risk 2 backend removed\n"},
		{"a drained backend", []desired.Frontend{web(80, 2)}, []desired.Frontend{web(80, 2, func(f *desired.Frontend) { f.Backends[0].Weight = 0 })},
			moves(backend(2), backend(1)), flowsTo(established, 1, 2), changed + " 2\n  172.16.1.1:80 drained 1>0\n"},
		{"hash-only", []desired.Frontend{web(80, 2, hashOnly)}, []desired.Frontend{web(80, 3, hashOnly)}, moves(backend(3)), flowsTo(established, 1, 2),
			changed + " 2\n  172.16.1.3:80 added >1\n  risk 2 hash-only: 25.0 % of the slots move\n"},
		{"a flow table", []desired.Frontend{web(80, 2, flowTable)}, []desired.Frontend{web(80, 3, flowTable)}, moves(backend(3)), flowsTo(established, 1, 2),
			changed + " 2\n  172.16.1.3:80 added >1\n"},
		{"a new flow table", []desired.Frontend{web(80, 2)}, []desired.Frontend{web(80, 2, flowTable)}, moves(backend(2)), flowsTo(established, 1, 2),
			changed + " 2\n  connection-consistency second-chance>flow-table\n  risk 1 the flow table does not have the connection yet: 25.0 % of the slots move\n"},
		{"second chance without history", []desired.Frontend{web(80, 2)}, []desired.Frontend{web(80, 2, func(f *desired.Frontend) { f.RingSize = 509 })}, moves(backend(2)), flowsTo(established, 1),
			changed + " 1\n  maglev-table-size 251>509\n  risk 1 no backend in the slot knows the connection: 25.0 % of the slots move\n"},
		{"forwarding mode", []desired.Frontend{web(80, 1)}, []desired.Frontend{web(80, 1, func(f *desired.Frontend) { f.Method, f.Encapsulation = service.NAT, "" })}, moves(backend(1)), flowsTo(established, 1),
			changed + " 1\n  forwarding-mode tunnel>nat\n  encapsulation ipip>none\n  risk 1 forwarding mode changes from tunnel to nat\n"},
		{"scheduler", []desired.Frontend{web(80, 1, hashOnly)}, []desired.Frontend{web(80, 1, hashOnly, func(f *desired.Frontend) { f.Scheduler = service.SourceHash })}, moves(backend(2)), flowsTo(established, 1),
			changed + " 1\n  scheduler maglev>sh\n  risk 1 scheduler or session affinity selects slots by something else (sh, before: maglev)\n"},
		{"a scheduler without a table", []desired.Frontend{web(80, 1)}, []desired.Frontend{web(80, 1, flowTable, func(f *desired.Frontend) { f.Scheduler = service.RoundRobin })},
			func(desired.Frontend) (dataplane.Preview, error) { return dataplane.Preview{}, nil }, flowsTo(established, 1),
			changed + " 1\n  scheduler maglev>rr\n  connection-consistency second-chance>flow-table\n  risk 1 scheduler rr does not know the backends of connections that it did not open\n"},
		{"from a scheduler without a table", []desired.Frontend{web(80, 2, flowTable, func(f *desired.Frontend) { f.Scheduler = service.RoundRobin })}, []desired.Frontend{web(80, 2, hashOnly)}, moves(backend(2)), flowsTo(established, 1, 2),
			changed + " 2\n  scheduler rr>maglev\n  connection-consistency flow-table>hash-only\n  risk 1 hash-only: scheduler rr has spread connections without slots\n"},
		{"source ranges", []desired.Frontend{web(80, 1)}, []desired.Frontend{web(80, 1, func(f *desired.Frontend) { f.Deny = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} })}, moves(backend(1)), flowsTo(established, 1, 1),
			changed + " 2\n  deny-source-ranges none>192.0.2.1/32\n  risk 1 client is not in the source ranges\n"},
		{"a range", []desired.Frontend{web(70, 1, func(f *desired.Frontend) { f.Last, f.Backends[0].Addr = 90, netip.AddrPortFrom(backend(1).Addr(), 0) })}, nil, moves(), flowsTo(established, 1),
			"default/web70 TCP 10.1.1.1:70-90 removed 1\n  risk 1 frontend deleted\n10.1.1.1/32 removed 10.1.1.1/32 via 10.0.0.1>\n"},
		{"rejected", []desired.Frontend{web(80, 2)}, []desired.Frontend{web(80, 1)},
			func(f desired.Frontend) (dataplane.Preview, error) {
				return dataplane.Preview{}, dataplane.Unsupported(f.Key, "one backend")
			}, flowsTo(established, 2),
			"default/web80 TCP 10.1.1.1:80 rejected (TCP 10.1.1.1:80: one backend: not supported by this data plane) 0\n"},
	} {
		in := Input{Programmed: map[service.Key]desired.Frontend{}, Before: planOf(c.before...), After: planOf(c.after...), Advertises: true, Preview: c.preview, Flows: c.flows}
		for _, f := range c.before {
			in.Programmed[f.Key] = f
			in.Advertised = []route.Route{advertised}
		}
		r, err := Of(in)
		if got := text(r); err != nil || got != c.want {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.name, err, got, c.want)
		}
		total := 0
		for _, f := range r.Frontends {
			for _, risk := range f.AtRisk {
				total += risk.Connections
			}
		}
		if total != r.Connections || r.Empty() != (c.want == "") {
			t.Errorf("%s: %d connections, want %d; empty %v", c.name, r.Connections, total, r.Empty())
		}
	}
}

// A frontend that is no longer programmed although its Service exists has the reason.
func TestReasonOfARemovedFrontend(t *testing.T) {
	before := web(80, 1)
	after := planOf(before)
	after.Frontends[0].State, after.Frontends[0].Reason, after.Frontends[0].Want = plan.NoEndpoints, "no endpoints", nil
	r, err := Of(Input{Programmed: map[service.Key]desired.Frontend{before.Key: before}, Before: planOf(before), After: after})
	if err != nil || len(r.Frontends) != 1 || r.Frontends[0].Reason != "no-endpoints: no endpoints" || len(r.Routes) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	in := Input{Programmed: map[service.Key]desired.Frontend{}, Before: planOf(), After: planOf(web(80, 1))}
	in.Preview = func(desired.Frontend) (dataplane.Preview, error) { return dataplane.Preview{}, broken }
	if _, err := Of(in); !errors.Is(err, broken) {
		t.Errorf("a failed preview: %v", err)
	}
	in.Preview, in.Flows = nil, func(yield func(dataplane.Flow, error) bool) { yield(dataplane.Flow{}, broken) }
	if _, err := Of(in); !errors.Is(err, broken) {
		t.Errorf("failed flows: %v", err)
	}
}

// A data plane that stores less than the plan has finds only what it stores.
func TestCanonical(t *testing.T) {
	before := web(80, 2)
	in := Input{Programmed: map[service.Key]desired.Frontend{before.Key: before}, Before: planOf(before), After: planOf(web(80, 2, func(f *desired.Frontend) { f.RingSize = 509 }))}
	in.Canonical = func(f desired.Frontend) desired.Frontend { f.RingSize, f.Survival = 0, service.FlowTable; return f }
	if r, err := Of(in); err != nil || !r.Empty() {
		t.Errorf("%+v, %v", r, err)
	}
	in.After = planOf(web(80, 1))
	in.Flows = flowsTo(established, 1, 2)
	r, err := Of(in)
	if err != nil || r.Connections != 1 || !slices.Equal(r.Frontends[0].AtRisk, []Risk{{"backend removed", 1}}) {
		t.Errorf("%+v, %v", r, err)
	}
}
