package agents_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// TestStopsAfterASilentReflector stops a load balancer and removes its pod, while one of
// two reflectors has been silent for less than the detection time. The router still has
// that reflector's routes, and yet no request fails.
func TestStopsAfterASilentReflector(t *testing.T) {
	for _, router := range []string{cluster.RouterFairlead, cluster.RouterFRR} {
		t.Run(router, func(t *testing.T) {
			w := fixture.NewWatched(t, router, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 3, TwoReflectors: true}, 3)
			tunnel := fixture.Spec{Name: "tunnel", Host: 1}
			w.HandIn(t, tunnel)
			for range 3 {
				w.NewBalancer(t, web, "--graceful-shutdown-period", "0s")
			}
			for _, pod := range w.Balancers(web) {
				watched(t, w, pod)
			}
			all := []fixture.Traffic{w.Load(t, "tunnel", tunnel.HTTP(), 20, 200)}
			leaving := w.Balancers(web)[0]
			fixture.During(t, all, "both reflectors there", func() {
				t.Logf("it took %v to stop", remove(t, w, leaving).Round(time.Millisecond))
			})
			leaving = w.Balancers(web)[0]
			fixture.During(t, all, "one reflector silent", func() {
				if err := w.Lab.Cut(topology.Second, topology.Dev); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				t.Logf("it took %v to stop", remove(t, w, leaving).Round(time.Millisecond))
				time.Sleep(time.Second)
			})
		})
	}
}

// watched waits until BFD monitors both sessions of a load balancer.
func watched(t *testing.T, w *fixture.World, pod topology.Pod) {
	t.Helper()
	w.Eventually(t, pod.Name, func(s status.Status) error {
		if len(s.Peers) != 2 {
			return fmt.Errorf("%s has peers %+v, want two", pod.Name, s.Peers)
		}
		for _, p := range s.Peers {
			if p.State != advertise.Established || p.BFD != "up" {
				return fmt.Errorf("%s: %+v", pod.Name, p)
			}
		}
		return nil
	})
}

// remove stops a load balancer and removes its pod; it returns how long the former took.
func remove(t *testing.T, w *fixture.World, pod topology.Pod) time.Duration {
	t.Helper()
	began := time.Now()
	err := w.Process(pod.Name).Stop(fixture.Within)
	took := time.Since(began)
	if err := errors.Join(err, w.RemovePod(pod.Name)); err != nil {
		t.Fatal(err)
	}
	return took
}
