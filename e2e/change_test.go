package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/status"
)

// comeAndGo lets balancers and servers come and go under load.
func (p *pods) comeAndGo(t *testing.T) {
	all := []traffic{
		p.load(t, "tunnel", p.tunnel.http(), 20, 50),
		p.load(t, "direct-nat", p.direct.http(), 20, 50),
		p.load(t, "tunnel over IPv6", p.tunnel.http6(), 10, 20),
		p.load(t, "direct-nat over IPv6", p.direct.http6(), 10, 20),
	}
	during(t, all, "a fourth balancer", func() { p.balancer(t, web) })
	during(t, all, "a balancer removed", func() { p.removeBalancer(t, p.Balancers(web)[0]) })

	var added paper.Pod
	during(t, all, "a fourth server", func() {
		added = p.addServer(t, web)
		p.write(t, p.tunnel, p.direct)
		p.inService(t, added, p.tunnel, func(b *status.Backend) bool { return b != nil && b.InService })
		p.inService(t, added, p.direct, func(b *status.Backend) bool { return b != nil && b.InService })
	})
	for _, s := range []spec{p.tunnel, p.direct} {
		if n := p.requests(t, 100, s.http())[added.Name]; n == 0 {
			t.Errorf("%s: the new server %s got nothing", s.name, added.Name)
		}
	}

	leaving := p.Servers(web)[0]
	during(t, all, "a server drained", func() {
		p.draining[leaving.Name] = true
		p.write(t, p.tunnel, p.direct)
		p.inService(t, leaving, p.tunnel, func(b *status.Backend) bool { return b != nil && b.Draining && b.InService })
		p.inService(t, leaving, p.direct, func(b *status.Backend) bool { return b != nil && b.Draining && b.InService })
	})
	for _, s := range []spec{p.tunnel, p.direct} {
		if n := p.requests(t, 100, s.http())[leaving.Name]; n > 0 {
			t.Errorf("%s: the draining server %s got %d new connections", s.name, leaving.Name, n)
		}
	}
	kept := uint64(0) // by those connections that it held before
	for _, tr := range all {
		kept += tr.lost(t, tr.Mark()).PerServer[leaving.Name]
	}
	if kept == 0 {
		t.Errorf("no connection that %s held goes on", leaving.Name)
	}
	during(t, all, "the server back", func() {
		delete(p.draining, leaving.Name)
		p.write(t, p.tunnel, p.direct)
		p.inService(t, leaving, p.tunnel, func(b *status.Backend) bool { return b != nil && !b.Draining })
		p.inService(t, leaving, p.direct, func(b *status.Backend) bool { return b != nil && !b.Draining })
	})
}

// removeBalancer ends one gently and takes its pod away.
func (p *pods) removeBalancer(t *testing.T, pod paper.Pod) {
	t.Helper()
	p.Forget(pod.Name)
	process := p.Process(pod.Name)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("%s ends on SIGTERM with %v", pod.Name, err)
	}
	testkit.Eventually(t, within, func() error {
		if want := p.NextHops(pod.Service); !p.RouterHas(pod.Service, want) {
			return fmt.Errorf("the router has not the next hops %v", want)
		}
		return nil
	})
	if err := p.RemovePod(pod.Name); err != nil {
		t.Fatal(err)
	}
}

// inService waits until every balancer's data plane treats a server as it
// should, in each frontend of a Service; nil stands for one that is not there.
func (w *world) inService(t *testing.T, server paper.Pod, of spec, good func(*status.Backend) bool) {
	t.Helper()
	for _, balancer := range w.Balancers(of.of) {
		w.eventually(t, balancer.Name, func(s status.Status) error {
			one, err := s.Only(of.name)
			if err != nil {
				return err
			}
			for _, f := range one.Services[0].Frontends {
				var found *status.Backend
				for i, b := range f.Backends {
					if a := b.Address.Addr(); a == server.Addr || a == server.Addr6 {
						found = &f.Backends[i]
					}
				}
				if !good(found) {
					return fmt.Errorf("%s: %s has server %s as %+v", balancer.Name, f.Key(), server.Name, found)
				}
			}
			return nil
		})
	}
}
