package agents_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// askFor is the graceful shutdown period here: long enough to observe on a busy machine
// that routers avoid a load balancer before its routes are withdrawn.
const askFor = 6 * time.Second

// metricsAt is where load balancers serve metrics here.
const metricsAt = "127.0.0.1:9474"

// drained is an environment with a load balancer that is drained.
type drained struct{ *fixture.World }

// TestDrain drains a load balancer by command under load, behind our router and behind
// FRR, and undrains it: no request fails.
func TestDrain(t *testing.T) {
	for _, router := range []string{cluster.RouterFairlead, cluster.RouterFRR} {
		t.Run(router, func(t *testing.T) {
			w := &drained{fixture.NewBehind(t, router, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 3}, 3)}
			tunnel, direct := fixture.Spec{Name: "tunnel", Host: 1}, fixture.Spec{Name: "direct", Host: 2, Annotations: []string{"forwarding-mode: dsr-nat"}}
			w.HandIn(t, tunnel, direct)
			for range 3 {
				w.NewBalancer(t, web, "--graceful-shutdown-period", askFor.String(), "--metrics-address", metricsAt)
			}
			all := []fixture.Traffic{w.Load(t, "tunnel", tunnel.HTTP(), 20, 50), w.Load(t, "dsr-nat", direct.HTTP(), 20, 50)}
			leaving := w.Balancers(web)[0]
			before, err := w.Status(t, leaving.Name)
			if err != nil {
				t.Fatal(err)
			}
			fixture.During(t, all, "a balancer drained", func() { w.drain(t, leaving) })
			w.seeDrained(t, leaving, before.Peers[0])
			fixture.During(t, all, "a balancer drained that serves again", func() {
				w.run(t, "undrain", "--wait", fixture.Within.String(), "--socket", cluster.Socket(leaving.Name))
				w.awaitHops(t, w.NextHops(web))
			})
		})
	}
}

// run runs a command that must succeed, and returns its output.
func (w *drained) run(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := w.Fairlead(t, "", args...)
	if code != 0 {
		t.Fatalf("fairlead %s exits with %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// awaitHops waits until the router's kernel has these next hops.
func (w *drained) awaitHops(t *testing.T, want []string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		if !w.RouterHas(web, want) {
			return fmt.Errorf("the router has not the next hops %v", want)
		}
		return nil
	})
}

// drain drains a load balancer, and checks that the router sends it nothing before its
// routes are withdrawn.
func (w *drained) drain(t *testing.T, pod topology.Pod) {
	t.Helper()
	var others []string
	for _, hop := range w.NextHops(web) {
		if hop != pod.Node.Addr.String() {
			others = append(others, hop)
		}
	}
	began := time.Now()
	w.run(t, "drain", "--socket", cluster.Socket(pod.Name))
	w.awaitHops(t, others)
	avoided := time.Since(began)
	s, err := w.Status(t, pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	if s.Drain == nil || s.Drain.Stage != plan.GracefulShutdown || !strings.Contains(string(s.Routes[0].Attributes.Communities), "graceful-shutdown") {
		t.Errorf("the router avoids it with drain state %+v and routes %+v; want it during graceful shutdown", s.Drain, s.Routes)
	}
	w.run(t, "drain", "--wait", fixture.Within.String(), "--socket", cluster.Socket(pod.Name))
	s, err = w.Status(t, pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the router avoids it after %v, drained after %v, of which graceful shutdown lasted %v",
		avoided.Round(time.Millisecond), s.Drain.Entered.Sub(s.Drain.Since).Round(time.Millisecond), askFor)
}

// seeDrained checks the status of a drained load balancer: its sessions are up, and its
// frontends are programmed.
func (w *drained) seeDrained(t *testing.T, pod topology.Pod, before advertise.Peer) {
	t.Helper()
	socket := cluster.Socket(pod.Name)
	w.Eventually(t, pod.Name, func(s status.Status) error {
		if s.Drain == nil || s.Drain.Stage != plan.Drained || s.Peers[0].State != advertise.Established || !s.Peers[0].Since.Equal(before.Since) {
			return fmt.Errorf("drain %+v, peers %+v; want it drained, and the session unchanged: %+v", s.Drain, s.Peers, before)
		}
		for _, svc := range s.Services {
			if f := svc.Frontends[0]; f.State != plan.Active {
				return fmt.Errorf("%s is %s: %s", f.Key(), f.State, f.Reason)
			}
		}
		return nil
	})
	w.scrape(t, pod.Name, `fairlead_drain_stage{stage="drained"} 1`, `fairlead_bgp_session_up{peer="`+topology.ReflectorAddr.String()+`"} 1`,
		`fairlead_bgp_advertised_prefixes{peer="`+topology.ReflectorAddr.String()+`"} 0`, `fairlead_frontends{state="active"} `)
	for _, c := range []struct{ args, want []string }{
		{[]string{"status"}, []string{"drained for", "by command (fairlead drain)", "routes      0 of"}},
		{[]string{"get", "routes"}, []string{"this load balancer is draining: by command"}},
		{[]string{"get", "peers", "-o", "wide"}, []string{"drained for", "established", "FLAPS"}},
		{[]string{"explain", "service", "tunnel"}, []string{"default/tunnel", "draining", "this load balancer is draining"}},
	} {
		out := w.run(t, append(c.args, "--socket", socket)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("fairlead %s prints %q, without %q", strings.Join(c.args, " "), out, want)
			}
		}
	}
}

// scrape requests the metrics of a host's agent, as Prometheus does.
func (w *drained) scrape(t *testing.T, host string, want ...string) {
	t.Helper()
	_, text := request(t, func(ctx context.Context) (net.Conn, error) {
		return w.Lab.Host(host).Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(metricsAt))
	}, metricsAt, "/metrics")
	for _, one := range want {
		if !strings.Contains(text, "\n"+one) {
			t.Errorf("metrics of %s are without %s:\n%s", host, one, text)
		}
	}
}
