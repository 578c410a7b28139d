package pods_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// comeAndGo adds and removes load balancers and backends under load.
func (p *pods) comeAndGo(t *testing.T) {
	all := []fixture.Traffic{
		p.Load(t, "tunnel", p.tunnel.HTTP(), 20, 50),
		p.Load(t, "dsr-nat", p.direct.HTTP(), 20, 50),
		p.Load(t, "tunnel over IPv6", p.tunnel.HTTP6(), 10, 20),
		p.Load(t, "dsr-nat over IPv6", p.direct.HTTP6(), 10, 20),
	}
	fixture.During(t, all, "a fourth balancer", func() { p.NewBalancer(t, web) })
	fixture.During(t, all, "a balancer removed", func() { p.removeBalancer(t, p.Balancers(web)[0]) })

	var added topology.Pod
	fixture.During(t, all, "a fourth server", func() {
		added = p.NewServer(t, web)
		p.HandIn(t, p.tunnel, p.direct)
		p.InService(t, added, p.tunnel, func(b *status.Backend) bool { return b != nil && b.InService })
		p.InService(t, added, p.direct, func(b *status.Backend) bool { return b != nil && b.InService })
	})
	for _, s := range []fixture.Spec{p.tunnel, p.direct} {
		if n := p.Requests(t, 100, s.HTTP())[added.Name]; n == 0 {
			t.Errorf("%s: the new server %s got nothing", s.Name, added.Name)
		}
	}

	leaving := p.Servers(web)[0]
	fixture.During(t, all, "a server drained", func() {
		p.Draining[leaving.Name] = true
		p.HandIn(t, p.tunnel, p.direct)
		p.InService(t, leaving, p.tunnel, func(b *status.Backend) bool { return b != nil && b.Draining && b.InService })
		p.InService(t, leaving, p.direct, func(b *status.Backend) bool { return b != nil && b.Draining && b.InService })
	})
	for _, s := range []fixture.Spec{p.tunnel, p.direct} {
		if n := p.Requests(t, 100, s.HTTP())[leaving.Name]; n > 0 {
			t.Errorf("%s: the draining server %s got %d new connections", s.Name, leaving.Name, n)
		}
	}
	kept := uint64(0) // on the connections that it had before
	for _, tr := range all {
		kept += tr.LostSince(t, tr.Mark()).PerServer[leaving.Name]
	}
	if kept == 0 {
		t.Errorf("no connection to %s continues", leaving.Name)
	}
	fixture.During(t, all, "the server back", func() {
		delete(p.Draining, leaving.Name)
		p.HandIn(t, p.tunnel, p.direct)
		p.InService(t, leaving, p.tunnel, func(b *status.Backend) bool { return b != nil && !b.Draining })
		p.InService(t, leaving, p.direct, func(b *status.Backend) bool { return b != nil && !b.Draining })
	})
}

// removeBalancer stops one gracefully and removes its pod.
func (p *pods) removeBalancer(t *testing.T, pod topology.Pod) {
	t.Helper()
	p.Forget(pod.Name)
	process := p.Process(pod.Name)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("%s ends on SIGTERM with %v", pod.Name, err)
	}
	testkit.Eventually(t, fixture.Within, func() error {
		if want := p.NextHops(pod.Service); !p.RouterHas(pod.Service, want) {
			return fmt.Errorf("the router has not the next hops %v", want)
		}
		return nil
	})
	if err := p.RemovePod(pod.Name); err != nil {
		t.Fatal(err)
	}
}
