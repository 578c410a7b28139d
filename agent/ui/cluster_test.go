package ui

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/api"
	"github.com/fairlead/fairlead/agent/journal"
	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/pktgen"
)

// fakeAgent answers like an agent with many Services, one of which is rejected, two
// routers, one of which is down, and drops.
type fakeAgent struct {
	name     string
	services int
	start    time.Time
	faulty   bool
	asked    atomic.Int64
}

// cluster returns agents: three load balancers, and one that does not answer.
func cluster(t *testing.T, services int) (agents []*Agent, fakes []*fakeAgent) {
	t.Helper()
	var addresses []string
	for i, name := range []string{"lb-1", "lb-2", "lb-3"} {
		f := &fakeAgent{name: name, services: services, start: time.Now(), faulty: i == 2}
		web := httptest.NewServer(f.handler())
		t.Cleanup(web.Close)
		addresses = append(addresses, name+"="+strings.TrimPrefix(web.URL, "http://"))
		fakes = append(fakes, f)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	agents, err = Agents(append(addresses, "lb-4="+silent.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	return agents, fakes
}

func (f *fakeAgent) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, get func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			f.asked.Add(1)
			_ = json.NewEncoder(w).Encode(get(r))
		})
	}
	answer("GET "+status.Path, func(r *http.Request) any { return f.status(r) })
	answer("GET "+rates.Path, func(r *http.Request) any { return f.rates(r) })
	answer("POST "+api.TracePath, func(*http.Request) any {
		return map[string]any{"interface": "eth0", "verdict": "XDP_DROP", "drop": "no-frontend", "in": frame(), "out": frame(), "steps": []map[string]string{{"text": "parsed as TCP"}, {"text": "dropped: no-frontend"}}}
	})
	mux.HandleFunc("GET "+api.EventsPath, func(w http.ResponseWriter, r *http.Request) {
		enc := json.NewEncoder(w)
		for range 2 {
			_ = enc.Encode(map[string]any{"time": time.Now(), "reason": "no-frontend", "interface": "eth0", "length": len(frame()), "data": frame()})
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("GET "+journal.Path, func(w http.ResponseWriter, r *http.Request) {
		q, _, err := journal.ParseParams(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		enc := json.NewEncoder(w)
		for _, e := range f.events() {
			if q.Selects(e) {
				_ = enc.Encode(e)
			}
		}
	})
	return mux
}

func frame() []byte {
	p := pktgen.Packet{From: netip.MustParseAddrPort("192.0.2.7:1234"), To: netip.MustParseAddrPort("10.1.9.9:80"), Protocol: "tcp", Flags: []string{"SYN"}}
	b, err := p.Frame()
	if err != nil {
		panic(err)
	}
	return b
}

func (f *fakeAgent) status(r *http.Request) status.Status {
	only, _ := selection.Parse(r.URL.Query())
	peer := func(name, address, bfd string) advertise.Peer {
		return advertise.Peer{Name: name, Address: address, AS: 65000, State: "established", BFD: bfd, Since: f.start.Add(-3 * time.Hour), Sent: 120}
	}
	s := status.Status{
		Version: "v0.9.0", Kernel: "Linux 6.12", Node: f.name, Role: "balancer", Started: f.start.Add(-50 * time.Hour), Time: time.Now(),
		DataPlane: &dataplane.Description{Kind: "xdp"}, Peers: []advertise.Peer{peer("tor-1", "10.0.0.1", "up"), peer("tor-2", "10.0.0.2", "up")},
		Degraded: []features.Degraded{}, Problems: []problem.Problem{},
	}
	if f.faulty {
		s.Peers[1].State, s.Peers[1].BFD, s.Peers[1].LastError, s.Peers[1].Since = "active", "down", "BFD: no packets for 900ms", f.start.Add(-time.Minute)
		s.Problems = []problem.Problem{{Where: "shop.yaml:14", Object: "Service shop/cart", Field: "metadata.annotations[fairlead.io/forwarding-mode]", Message: `"tunel" is not a forwarding mode: use tunnel, dr, nat, fullnat or dsr-nat`}}
	}
	for _, name := range only.Services {
		s.Services = append(s.Services, status.Service{ID: name, ForwardingMode: service.Tunnel, Scheduler: service.Maglev, Origin: "shop.yaml:3", Frontends: []status.Frontend{{
			VIP: netip.MustParseAddr("10.1.0.1"), Port: 80, Protocol: "TCP", State: plan.NoHealthyBackend, Reason: "all of its 2 backends are down",
		}}})
	}
	return s
}

func (f *fakeAgent) rates(r *http.Request) rates.Report {
	q, _ := rates.ParseQuery(r.URL.Query())
	wave := 1 + 0.3*math.Sin(time.Since(f.start).Seconds()+float64(len(f.name)))
	report := rates.Report{Node: f.name, Time: time.Now(), Seconds: 2, Next: 0.3, View: q.View, Sort: q.Sort, All: f.services, Total: rates.Rate{Packets: 84000 * wave, Bits: 410e6 * wave, Flows: 1900 * wave}}
	report.Drops = []rates.Drop{{At: "balancer", Reason: "no-frontend", PerSecond: 12 * wave, Total: 48211}, {At: "balancer", Reason: "rate-limited", PerSecond: 40 * wave * wave, Total: 912}}
	switch q.View {
	case rates.Services:
		for i := range f.services {
			report.Rows = append(report.Rows, f.service(i, wave))
		}
	case rates.Backends:
		for i := range 9 {
			row := rates.Row{Backend: fmt.Sprintf("172.16.%d.%d:8080", i%4+1, i+10), Name: fmt.Sprintf("web-%d", i), Node: fmt.Sprintf("node-%d", i%4+1), State: "in-service", Health: "up", Rate: rates.Rate{Packets: 9000 * wave, Bits: 44e6 * wave, Flows: 200}}
			if i == 6 {
				row.State, row.Health, row.LastError, row.Rate = "excluded", "down", "GET http://172.16.3.16:8080/healthz: 503 Service Unavailable", rates.Rate{}
			}
			report.Rows = append(report.Rows, row)
		}
	}
	report.Rows = selected(report.Rows, q)
	report.Matching = len(report.Rows)
	report.Rows = report.Rows[:min(len(report.Rows), q.Limit)]
	return report
}

// selected filters and sorts like an agent, as far as the page's tests need it: rows are
// generated in the order of their rates, the worst first.
func selected(rows []rates.Row, q rates.Query) []rates.Row {
	kept := []rates.Row{}
	for _, r := range rows {
		if strings.Contains(r.Service, q.Filter) {
			kept = append(kept, r)
		}
	}
	return kept
}

func (f *fakeAgent) service(i int, wave float64) rates.Row {
	r := rates.Row{Service: fmt.Sprintf("shop/web-%04d", i), State: "active", Frontends: 1, Backends: 9, Up: 9, Rate: rates.Rate{Packets: 8400 * wave / float64(i+1), Bits: 41e6 * wave / float64(i+1), Flows: 190 / float64(i+1)}}
	switch {
	case i == 0:
		r.Service, r.State, r.Reason, r.Up, r.Rate = "shop/cart", string(plan.NoHealthyBackend), "all of its 2 backends are down", 0, rates.Rate{}
	case i == 1 && f.faulty:
		r.State, r.Reason = "pending", "not yet programmed into the data plane"
	case i == 2:
		r.Up = 8
	}
	return r
}

func (f *fakeAgent) events() []event.Event {
	node := event.Object{Kind: "Node", Name: f.name}
	at := func(before time.Duration) time.Time { return f.start.Add(-before) }
	all := []event.Event{
		{Time: at(50 * time.Hour), Type: event.AgentStarted, Object: node, Cause: "v0.9.0 as balancer"},
		{Time: at(3 * time.Hour), Type: event.PeerEstablished, Object: event.Object{Kind: "BGPPeer", Name: "tor-2"}, From: "opensent", To: "established"},
	}
	if f.name == "lb-2" {
		all = append(all, event.Event{Time: at(20 * time.Minute), Type: event.DrainStarted, Object: node, Cause: "fairlead drain"}, event.Event{Time: at(18 * time.Minute), Type: event.RoutesWithdrawn, Object: node},
			event.Event{Time: at(12 * time.Minute), Type: event.DrainCompleted, Object: node}, event.Event{Time: at(4 * time.Minute), Type: event.DrainEnded, Object: node})
	}
	if f.faulty {
		all = append(all, event.Event{Time: at(time.Minute), Type: event.BFDDown, Severity: event.Warning, Object: event.Object{Kind: "BGPPeer", Name: "tor-2"}, From: "up", To: "down", Cause: "no packets for 900ms"},
			event.Event{Time: at(-3 * time.Second), Type: event.BackendUnhealthy, Severity: event.Warning, Object: event.Object{Kind: "Backend", Name: "172.16.3.16:8080"}, From: "up", To: "down", Cause: "503 Service Unavailable", Services: []string{"shop/web-0002"}})
	}
	for i := range all {
		e := &all[i]
		e.ID, e.Last, e.Count = uint64(i+1), e.Time, 1
		if e.Severity == "" {
			e.Severity = event.Normal
		}
	}
	return all
}
