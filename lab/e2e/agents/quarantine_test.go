package agents_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// TestQuarantine drains a backend by command under load, on all load balancers that read the
// folder, and undrains it: no request fails, and the backend gets no new connections in the
// meantime. Nor does it from a load balancer that is restarted while the backend is drained.
func TestQuarantine(t *testing.T) {
	w := &drained{fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2}, 3)}
	tunnel := fixture.Spec{Name: "tunnel", Host: 1}
	tracked := fixture.Spec{Name: "tracked", Host: 2, Annotations: []string{"forwarding-mode: dsr-nat", "scheduler: rr"}}
	w.HandIn(t, tunnel, tracked)
	for range 2 {
		w.NewBalancer(t, web, "--metrics-address", metricsAt)
	}
	balancers, sick := w.Balancers(web), w.Servers(web)[0]
	socket := cluster.Socket(balancers[0].Name)
	all := []fixture.Traffic{w.Load(t, "tunnel", tunnel.HTTP(), 20, 50), w.Load(t, "tracked", tracked.HTTP(), 20, 50)}

	fixture.During(t, all, "a backend drained", func() {
		w.run(t, "drain", "--backend", sick.Addr.String(), "--reason", "disk errors", "--socket", socket)
		w.awaitQuarantine(t, balancers, sick, true)
	})
	w.getsNew(t, sick, false, tunnel, tracked)
	for _, args := range [][]string{{"status"}, {"get", "backends"}, {"explain", "backend", sick.Addr.String()}, {"get", "events"}} {
		if out := w.run(t, append(args, "--socket", socket)...); !strings.Contains(out, "disk errors") {
			t.Errorf("fairlead %s does not say why the backend is drained:\n%s", strings.Join(args, " "), out)
		}
	}
	w.scrape(t, balancers[0].Name, "fairlead_drained_backends ")

	fixture.During(t, all, "a backend undrained", func() {
		w.run(t, "undrain", "--backend", sick.Addr.String(), "--socket", socket)
		w.awaitQuarantine(t, balancers, sick, false)
	})
	w.getsNew(t, sick, true, tunnel, tracked)

	// A restart keeps the order. It breaks tracked flows, which belong to the load balancer.
	w.run(t, "drain", "--backend", sick.Addr.String(), "--socket", socket)
	restarted := time.Now()
	p := w.Process(balancers[0].Name)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	_ = p.Wait() // it was killed
	if err := w.StartBalancer(balancers[0]); err != nil {
		t.Fatal(err)
	}
	w.AwaitBack(t, balancers[0], restarted)
	w.awaitQuarantine(t, balancers, sick, true)
	w.getsNew(t, sick, false, tunnel, tracked)
}

// awaitQuarantine waits until all load balancers drain a backend, or none does.
func (w *drained) awaitQuarantine(t *testing.T, balancers []topology.Pod, sick topology.Pod, is bool) {
	t.Helper()
	for _, pod := range balancers {
		w.Eventually(t, pod.Name, func(s status.Status) error {
			for _, svc := range s.Services {
				for _, f := range svc.Frontends {
					for _, b := range f.Backends {
						if b.Address.Addr() == sick.Addr && ((b.Quarantine != nil) != is || (b.ProgrammedWeight == 0) != is) {
							return fmt.Errorf("%s of %s has weight %d, quarantine %+v", b.Address, f.Key(), b.ProgrammedWeight, b.Quarantine)
						}
					}
				}
			}
			return nil
		})
	}
}

// getsNew checks whether a backend gets new connections of Services.
func (w *drained) getsNew(t *testing.T, server topology.Pod, does bool, specs ...fixture.Spec) {
	t.Helper()
	for _, s := range specs {
		const n = 200
		if by := w.Requests(t, n, s.HTTP()); (by[server.Name] > 0) != does {
			t.Errorf("%s: of %d new connections, %s gets %d: %v", s.Name, n, server.Name, by[server.Name], by)
		}
	}
}
