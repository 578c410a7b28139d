package rates

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/reconciler"
	"github.com/fairlead/fairlead/reconciler/probe"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// countedPlane is a data plane of which only the counters are read.
type countedPlane struct {
	dataplane.DataPlane
	frontends map[service.Key]dataplane.Counts
	backends  map[backendKey]dataplane.Counts
	reads     int
	err       error
}

func (c *countedPlane) SampleFrontends(f func(service.Key, dataplane.Counts)) error {
	c.reads++
	for k, n := range c.frontends {
		f(k, n)
	}
	return c.err
}

func (c *countedPlane) SampleBackends(f func(service.Key, netip.AddrPort, dataplane.Counts)) error {
	for k, n := range c.backends {
		f(k.key, k.addr, n)
	}
	return c.err
}

func keyOf(vip string) service.Key {
	return service.Key{VIP: netip.MustParseAddr(vip), Port: 80, Protocol: service.TCP}
}

func serviceOf(name string, backends string, vips ...string) *service.Service {
	s := &service.Service{
		ID: service.ID{Namespace: "default", Name: name}, Method: service.Tunnel, Scheduler: service.Maglev, RingSize: 13,
		Health: service.DefaultHealthCheck, Panic: true,
	}
	for _, vip := range vips {
		f := service.Frontend{Key: keyOf(vip)}
		for _, b := range strings.Fields(backends) {
			f.Backends = append(f.Backends, service.Backend{Addr: netip.MustParseAddrPort(b), Weight: 1, Name: "pod-" + b, Node: "node1"})
		}
		s.Frontends = append(s.Frontends, f)
	}
	return s
}

// scene returns an agent with three Services, one of which has a failing backend, and its
// data plane.
func scene() (*Sampler, *countedPlane) {
	down := netip.MustParseAddrPort("172.16.1.2:80")
	v := viewOf(func(t health.Target) health.State {
		if t.Addr == down {
			return health.Down
		}
		return health.Up
	}, serviceOf("dns", "172.16.2.1:80", "10.1.1.9"), serviceOf("empty", "", "10.1.1.8"), serviceOf("web", "172.16.1.1:80 172.16.1.2:80", "10.1.1.1", "10.1.1.2"))
	plane := &countedPlane{frontends: map[service.Key]dataplane.Counts{}, backends: map[backendKey]dataplane.Counts{}}
	return New(Config{
		Status: func() status.Agent {
			return status.Agent{Node: "lb1", View: func() *reconciler.View { return v }, DataPlane: plane, Probed: func(t health.Target) probe.Result {
				if t.Addr == down {
					return probe.Result{State: health.Down, Since: noon, Error: "HTTP 503, wanted 2xx or 3xx", WasUp: true}
				}
				return probe.Result{State: health.Up, Since: noon, WasUp: true}
			}}
		},
		Dropped: func() (map[Cause]uint64, error) {
			return map[Cause]uint64{{"balancer", "no-frontend"}: uint64(10 * plane.reads), {"balancer", "malformed"}: 7, {"balancer", "unused"}: 0}, nil
		},
	}), plane
}

func viewOf(state func(health.Target) health.State, services ...*service.Service) *reconciler.View {
	p := plan.Build(plan.Input{Services: services, Node: plan.Node{Name: "lb1", NextHop4: netip.MustParseAddr("10.0.0.5")}, Health: state})
	v := &reconciler.View{Plan: p, Loaded: true, Held: map[service.Key]desired.Frontend{}}
	for _, f := range p.Frontends {
		if f.Want != nil {
			v.Held[f.Key] = *f.Want
		}
	}
	return v
}

// play sets counters, asks, sets others and asks again after two seconds.
func play(q Query) (Report, *Sampler, *countedPlane) {
	s, plane := scene()
	set := func(n uint64) {
		plane.frontends[keyOf("10.1.1.1")] = dataplane.Counts{Packets: 10 * n, Bytes: 1000 * n, Flows: n}
		plane.frontends[keyOf("10.1.1.2")] = dataplane.Counts{Packets: 5 * n, Bytes: 500 * n}
		plane.frontends[keyOf("10.1.1.9")] = dataplane.Counts{Packets: 12 * n, Bytes: 60 * n}
		plane.backends[backendKey{addr: netip.MustParseAddrPort("172.16.1.1:80")}] = dataplane.Counts{Packets: 15 * n}
		plane.backends[backendKey{key: keyOf("10.1.1.9"), addr: netip.MustParseAddrPort("172.16.2.1:80")}] = dataplane.Counts{Packets: 12 * n}
	}
	q.Interval = 2 * time.Second
	set(100)
	s.Report(q, noon)
	set(300)
	return s.Report(q, noon.Add(2*time.Second)), s, plane
}

// words shows the rows of a Report.
func words(r Report) (lines []string) {
	for _, row := range r.Rows {
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%s %s|%d/%d|%g %g %g", strings.TrimPrefix(row.Service, "default/"), row.Frontend, row.Backend,
			row.State, row.Health, row.Up, row.Backends, row.Packets, row.Bits, row.Flows))
	}
	return lines
}

func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		q    Query
		want []string
	}{
		"services by packets": {Default(Services), []string{
			"web|||active |2/4|1500 1.2e+06 100", "dns|||active |1/1|1200 48000 0", "empty|||no-endpoints |0/0|0 0 0"}},
		"services by state": {Query{View: Services, Sort: ByState, Limit: 9}, []string{
			"empty|||no-endpoints |0/0|0 0 0", "dns|||active |1/1|1200 48000 0", "web|||active |2/4|1500 1.2e+06 100"}},
		"services by name, backwards": {Query{View: Services, Sort: ByName, Reverse: true, Limit: 2}, []string{
			"web|||active |2/4|1500 1.2e+06 100", "empty|||no-endpoints |0/0|0 0 0"}},
		"frontends of a Service": {Query{View: Frontends, Sort: ByBits, Limit: 9, Service: "default/web"}, []string{
			"web|TCP 10.1.1.1:80||active |1/2|1000 800000 100", "web|TCP 10.1.1.2:80||active |1/2|500 400000 0"}},
		"frontends by filter": {Query{View: Frontends, Sort: ByName, Limit: 9, Filter: "TCP 10.1.1.9"}, []string{
			"dns|TCP 10.1.1.9:80||active |1/1|1200 48000 0"}},
		"backends": {Query{View: Backends, Sort: ByPackets, Limit: 9}, []string{
			"||172.16.1.1:80|in-service up|0/0|1500 0 0", "dns|TCP 10.1.1.9:80|172.16.2.1:80|in-service up|0/0|1200 0 0", "||172.16.1.2:80|draining down|0/0|0 0 0"}},
		"the worst backends": {Query{View: Backends, Sort: ByState, Limit: 1}, []string{"||172.16.1.2:80|draining down|0/0|0 0 0"}},
		"backends of a frontend": {Query{View: Backends, Sort: ByPackets, Limit: 9, Frontend: "TCP 10.1.1.1:80"}, []string{
			"web|TCP 10.1.1.1:80|172.16.1.1:80|in-service up|0/0|1500 0 0", "web|TCP 10.1.1.1:80|172.16.1.2:80|draining down|0/0|0 0 0"}},
		"a backend of its frontends": {Query{View: Backends, Sort: ByName, Limit: 9, Backend: "172.16.1.2:80"}, []string{
			"web|TCP 10.1.1.1:80|172.16.1.2:80|draining down|0/0|0 0 0", "web|TCP 10.1.1.2:80|172.16.1.2:80|draining down|0/0|0 0 0"}},
		"backends by health": {Query{View: Backends, Sort: ByName, Limit: 9, Filter: "down"}, []string{"||172.16.1.2:80|draining down|0/0|0 0 0"}},
		"the node":           {Query{View: Node, Sort: ByName, Limit: 9}, nil},
	} {
		got, _, _ := play(c.q)
		if diff := cmp.Diff(c.want, words(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got.Total != (Rate{2700, 1248000, 100}) || got.Seconds != 2 {
			t.Errorf("%s: total %+v in %g s", name, got.Total, got.Seconds)
		}
	}
}

func TestDetailsOfABackend(t *testing.T) {
	r, _, _ := play(Query{View: Backends, Sort: ByState, Limit: 1})
	b := r.Rows[0]
	if b.LastError != "HTTP 503, wanted 2xx or 3xx" || !b.Since.Equal(noon) || b.Frontends != 2 || *b.Weight != 1 || b.Node != "node1" || b.Name == "" {
		t.Errorf("%+v", b)
	}
	if r.Matching != 3 || r.All != 3 || r.Node != "lb1" {
		t.Errorf("%+v", r)
	}
}

func TestDrops(t *testing.T) {
	r, _, _ := play(Default(Node))
	want := []Drop{{"balancer", "no-frontend", 5, 20}, {"balancer", "malformed", 0, 7}}
	if diff := cmp.Diff(want, r.Drops); diff != "" {
		t.Error(diff)
	}
}

// One reading serves everybody until the interval has passed.
func TestReadingsAreShared(t *testing.T) {
	_, s, plane := play(Default(Services))
	at := func(after time.Duration, interval time.Duration) (Report, int) {
		q := Default(Frontends)
		q.Interval = interval
		r := s.Report(q, noon.Add(after))
		return r, plane.reads
	}
	if r, reads := at(3*time.Second, 2*time.Second); reads != 2 || r.Seconds != 2 || r.Next != 1 {
		t.Errorf("too early: %d readings, %+v", reads, r)
	}
	if r, reads := at(3500*time.Millisecond, time.Second); reads != 3 || r.Seconds != 1.5 {
		t.Errorf("a shorter interval: %d readings, %+v", reads, r)
	}
	if r, reads := at(time.Hour, time.Second); reads != 4 || r.Seconds != 0 || r.Total != (Rate{}) {
		t.Errorf("after an hour without viewers, rates are averages of it: %d readings, %+v", reads, r)
	}
}

// What takes CPU time is done less often.
func TestCostIsBounded(t *testing.T) {
	_, s, plane := play(Default(Services))
	s.busy = 100 * time.Millisecond
	q := Default(Services)
	if r := s.Report(q, noon.Add(6*time.Second)); plane.reads != 2 || r.Next < 2 || r.Next > 3 {
		t.Errorf("%d readings, next in %g s", plane.reads, r.Next)
	}
	if r := s.Report(q, noon.Add(9*time.Second)); plane.reads != 3 || r.Seconds != 7 || r.Next < 6 {
		t.Errorf("%d readings, %+v", plane.reads, r)
	}
}

func TestRelease(t *testing.T) {
	_, s, _ := play(Default(Backends))
	s.release()
	if r := s.Report(Default(Backends), noon.Add(3*time.Second)); r.Seconds != 0 || len(r.Rows) != 3 {
		t.Errorf("%+v", r)
	}
}

// A counter that is smaller than before has started again.
func TestCounterStartsAgain(t *testing.T) {
	_, s, plane := play(Default(Services))
	plane.frontends[keyOf("10.1.1.9")] = dataplane.Counts{Packets: 8}
	q := Query{View: Frontends, Sort: ByName, Limit: 1, Interval: 2 * time.Second}
	if r := s.Report(q, noon.Add(4*time.Second)); r.Rows[0].Packets != 4 {
		t.Errorf("%+v", r.Rows[0])
	}
}

// Counters of removed objects are forgotten.
func TestRemovedObjects(t *testing.T) {
	var m meter[int]
	read := func(n int) {
		now := m.after.Add(time.Second)
		if m.after.IsZero() {
			now = noon
		}
		if err := m.read(now, now.Add(-time.Minute), func(add func(int, dataplane.Counts)) error {
			for i := range n {
				add(i, dataplane.Counts{Packets: 1})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	read(5000)
	read(4999)
	if rate, counts := m.of(4999); rate != (Rate{}) || counts != (dataplane.Counts{}) || m.has(4999) || len(m.pairs) != 5000 {
		t.Errorf("%+v, %+v, %d", rate, counts, len(m.pairs))
	}
	read(1)
	read(1)
	if len(m.pairs) != 1 || m.seconds() != 0 {
		t.Errorf("%d counters, %g s", len(m.pairs), m.seconds())
	}
}

func TestFailedReading(t *testing.T) {
	_, s, plane := play(Default(Services))
	plane.err = errors.New("no")
	q := Query{View: Services, Sort: ByState, Limit: 9, Interval: time.Second}
	if r := s.Report(q, noon.Add(4*time.Second)); r.Error != "reading counters: no" || len(r.Rows) != 3 || r.Total != (Rate{}) || r.Next != 1 {
		t.Errorf("%+v", r)
	}
	plane.err = nil
	s.Report(q, noon.Add(6*time.Second))
	if r := s.Report(q, noon.Add(8*time.Second)); r.Error != "" || r.Seconds != 2 {
		t.Errorf("%+v", r)
	}
}

// Without a data plane, everything is listed and nothing counted.
func TestWithoutADataPlane(t *testing.T) {
	s, _ := scene()
	with := s.Status
	s.Status = func() status.Agent { a := with(); a.DataPlane = nil; return a }
	if r := s.Report(Default(Backends), noon); len(r.Rows) != 3 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	s.Status = func() status.Agent { return status.Agent{} }
	if r := s.Report(Default(Services), noon); len(r.Rows) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestParseQueryIsTheInverseOfValues(t *testing.T) {
	for _, q := range []Query{
		Default(Services),
		{View: Backends, Sort: ByFlows, Reverse: true, Limit: 7, Filter: "a b&c", Service: "x/y", Frontend: "TCP [2001:db8::1]:80", Backend: "1.2.3.4:5", Interval: 3 * time.Second},
	} {
		if got, err := ParseQuery(q.Values()); err != nil || got != q {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if q, err := ParseQuery(nil); err != nil || q != Default(Services) {
		t.Errorf("%+v, %v", q, err)
	}
	for name, text := range map[string]string{"view": "x", "sort": "x", "limit": "-1", "interval": "1ms", "filter": strings.Repeat("x", 2000)} {
		if _, err := ParseQuery(map[string][]string{name: {text}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%.5s: %v", name, text, err)
		}
	}
}

func TestServe(t *testing.T) {
	s, _ := scene()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", Path+"?"+Default(Services).Values().Encode(), nil))
	var r Report
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || len(r.Rows) != 3 || strings.Contains(w.Body.String(), "null") {
		t.Errorf("%v: %s", err, w.Body)
	}
	w = httptest.NewRecorder()
	if s.ServeHTTP(w, httptest.NewRequest("GET", Path+"?limit=x", nil)); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// BenchmarkReport is one answer after a new reading, for 10,000 Services.
func BenchmarkReport(b *testing.B) {
	const n = 10000
	all := make([]*service.Service, n)
	plane := &countedPlane{frontends: map[service.Key]dataplane.Counts{}, backends: map[backendKey]dataplane.Counts{}}
	for i := range all {
		vip := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()
		one, two := fmt.Sprintf("172.16.%d.%d:80", i>>8, i&255), fmt.Sprintf("172.17.%d.%d:80", i>>8, i&255)
		all[i] = serviceOf(fmt.Sprintf("service-%05d", i), one+" "+two, vip)
		plane.frontends[keyOf(vip)] = dataplane.Counts{Packets: uint64(i * 7919 % n)}
		for _, a := range []string{one, two} {
			plane.backends[backendKey{addr: netip.MustParseAddrPort(a)}] = dataplane.Counts{Packets: uint64(i * 7919 % n)}
		}
	}
	v := viewOf(func(health.Target) health.State { return health.Up }, all...)
	for _, view := range Views {
		for _, churn := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/newView=%v", view, churn), func(b *testing.B) {
				s := New(Config{Status: func() status.Agent {
					return status.Agent{View: func() *reconciler.View { return v }, DataPlane: plane}
				}})
				now := noon
				for b.Loop() {
					if churn {
						next := *v
						v = &next
					}
					now = now.Add(time.Minute)
					s.busy, s.cost = 0, 0
					if _, err := json.Marshal(s.Report(Default(view), now)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
