package agents_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/explain"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// explaining is an environment with one load balancer, in which one thing after the other
// is broken.
type explaining struct {
	*fixture.World
	// checked has health checks at a port of its own, plain has none.
	checked, plain fixture.Spec
	balancer       topology.Pod
	healthy        map[string]net.Listener // by backend
}

// checkedPort is the port of the health checks.
const checkedPort = 9001

// TestExplain breaks something, and follows the symptom to its cause with at most two
// commands each.
func TestExplain(t *testing.T) {
	e := &explaining{
		World:   fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2}, 2),
		checked: fixture.Spec{Name: "checked", Host: 1, OwnRoute: true, Annotations: []string{"health-check: http", fmt.Sprintf("health-check-port: %q", fmt.Sprint(checkedPort)), "health-check-interval: 1s", "health-check-timeout: 1s", "panic-mode: disabled"}},
		plain:   fixture.Spec{Name: "plain", Host: 2, OwnRoute: true, Annotations: []string{"health-check: none"}},
		healthy: map[string]net.Listener{},
	}
	for _, pod := range e.Servers(web) {
		e.heal(t, pod)
	}
	e.HandIn(t, e.checked, e.plain)
	var err error
	if e.balancer, err = e.AddBalancer(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if err := e.StartBalancer(e.balancer, "--max-frontends", "4"); err != nil { // as many as the two Services have
		t.Fatal(err)
	}
	e.completes(t, "service", "checked")
	e.completes(t, "service", "plain")
	for _, story := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"backend down", e.backendDown}, {"all backends unhealthy", e.allDown}, {"typo in an annotation", e.typo}, {"no endpoints", e.noEndpoints},
		{"the address of another Service", e.conflict}, {"full table", e.full}, {"unsupported settings", e.unsupported}, {"access list", e.denied}, {"wrong port", e.wrongPort}, {"larger than the MTU", e.tooBig},
		{"no route to a backend", e.noRoute}, {"drained node", e.drained}, {"peer down", e.peerDown}, {"an advertisement that matches nothing", e.unmatched},
	} {
		t.Run(story.name, story.run)
	}
}

// heal makes a backend pass its health checks.
func (e *explaining) heal(t *testing.T, pod topology.Pod) {
	t.Helper()
	e.healthy[pod.Name] = e.Heal(t, pod, checkedPort)
}

// explain returns what the load balancer explains.
func (e *explaining) explain(t *testing.T, args ...string) (explain.Chain, error) {
	t.Helper()
	out, errs, code := e.Fairlead(t, "", append(append([]string{"explain"}, args...), "-o", "json", "--socket", cluster.Socket(e.balancer.Name))...)
	if code != 0 {
		return explain.Chain{}, fmt.Errorf("explain %v exits with %d: %s", args, code, errs)
	}
	var chains []explain.Chain
	if err := json.Unmarshal([]byte(out), &chains); err != nil || len(chains) != 1 {
		return explain.Chain{}, fmt.Errorf("explain %v: %d chains, %w", args, len(chains), err)
	}
	return chains[0], nil
}

// completes waits until an object is explained as complete.
func (e *explaining) completes(t *testing.T, args ...string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		c, err := e.explain(t, args...)
		if err == nil && !c.Complete {
			err = fmt.Errorf("explain %v stops at %q: %+v", args, c.StopsAt, c.Steps)
		}
		return err
	})
}

// stops waits until the first step that is not complete is this one, with this cause.
func (e *explaining) stops(t *testing.T, step, cause string, args ...string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		c, err := e.explain(t, args...)
		if err != nil {
			return err
		}
		for _, s := range c.Steps {
			if !s.OK {
				if s.Step != step || !strings.Contains(s.Reason, cause) || s.Hint == "" {
					return fmt.Errorf("explain %v stops at %+v, want %s because of %q", args, s, step, cause)
				}
				return nil
			}
		}
		return fmt.Errorf("explain %v is complete: %+v", args, c.Steps)
	})
}

// warns waits until a complete explanation has a step with this reason.
func (e *explaining) warns(t *testing.T, step, reason string, args ...string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		c, err := e.explain(t, args...)
		if err != nil {
			return err
		}
		for _, s := range c.Steps {
			if c.Complete && s.Step == step && strings.Contains(s.Reason, reason) {
				return nil
			}
		}
		return fmt.Errorf("explain %v: %+v, want %s to warn of %q", args, c.Steps, step, reason)
	})
}

func (e *explaining) backendDown(t *testing.T) {
	pod := e.Servers(web)[0]
	e.healthy[pod.Name].Close()
	e.warns(t, explain.StepBackends, pod.Addr.String()+":", "service", "checked")
	e.stops(t, explain.StepHealth, "connection refused", "backend", netip.AddrPortFrom(pod.Addr, fixture.HTTPTarget).String())
	e.heal(t, pod)
	e.completes(t, "backend", netip.AddrPortFrom(pod.Addr, fixture.HTTPTarget).String())
}

func (e *explaining) allDown(t *testing.T) {
	for _, pod := range e.Servers(web) {
		e.healthy[pod.Name].Close()
	}
	e.stops(t, explain.StepBackends, "no-healthy-backend: none of 2 backends passes its http health check", "service", "checked")
	e.stops(t, explain.StepOrigins, "no-healthy-backend", "route", e.checked.HTTP().Addr().String())
	for _, pod := range e.Servers(web) {
		e.heal(t, pod)
	}
	e.completes(t, "service", "checked")
}

func (e *explaining) typo(t *testing.T) {
	wrong := e.plain
	wrong.Annotations = append([]string{"schedular: rr"}, wrong.Annotations...)
	e.HandIn(t, wrong)
	e.stops(t, explain.StepAccepted, `did you mean "fairlead.io/scheduler"?`, "service", "plain")
	e.HandIn(t, e.plain)
	e.completes(t, "service", "plain")
}

func (e *explaining) noEndpoints(t *testing.T) {
	text, _, _ := strings.Cut(e.plain.Manifest(e.World), "---\n")
	if err := e.Write(web, "plain.yaml", text); err != nil {
		t.Fatal(err)
	}
	e.stops(t, explain.StepBackends, "no-endpoints", "service", "plain")
	e.HandIn(t, e.plain)
	e.completes(t, "service", "plain")
}

func (e *explaining) conflict(t *testing.T) {
	other := e.plain
	other.Name = "usurper"
	if err := e.Write(web, "usurper.yaml", strings.ReplaceAll(other.Manifest(e.World), "2026-01-01", "2026-02-01")); err != nil {
		t.Fatal(err)
	}
	e.stops(t, explain.StepPlanned, "conflict: Service default/plain already has", "service", "usurper")
	e.completes(t, "service", "plain")
}

func (e *explaining) full(t *testing.T) {
	third := e.plain
	third.Name, third.Host = "third", 3
	e.HandIn(t, third)
	e.stops(t, explain.StepProgrammed, "(MaxFrontends, --max-frontends)", "service", "third")
	e.completes(t, "service", "plain")
	third.Annotations = append([]string{`dedicated: "true"`}, third.Annotations...)
	e.HandIn(t, third)
	e.stops(t, explain.StepPlanned, "dedicated-elsewhere: the Service is served by dedicated load balancers", "service", "third")
}

// unsupported needs another port at the backends, which one forwarding mode cannot provide.
func (e *explaining) unsupported(t *testing.T) {
	direct := e.plain
	direct.Annotations = append([]string{"forwarding-mode: dr"}, direct.Annotations...)
	e.HandIn(t, direct)
	e.stops(t, explain.StepAccepted, "forwarding mode dr does not rewrite packets", "service", "plain")
	e.HandIn(t, e.plain)
	e.completes(t, "service", "plain")
}

func (e *explaining) denied(t *testing.T) {
	closed := e.checked
	closed.Annotations = append([]string{`deny-source-ranges: "` + e.ClientAddrs[0].String() + `/32"`}, closed.Annotations...)
	e.HandIn(t, closed)
	client := netip.AddrPortFrom(e.ClientAddrs[0], 4321).String()
	e.stops(t, explain.StepPolicy, "dropped: source-denied", "flow", client, e.checked.HTTP().String(), "--flags", "SYN")
	e.completes(t, "flow", netip.AddrPortFrom(e.ClientAddrs[1], 4321).String(), e.checked.HTTP().String())
	e.HandIn(t, e.checked)
	e.completes(t, "flow", client, e.checked.HTTP().String())
}

func (e *explaining) wrongPort(t *testing.T) {
	client, vip := netip.AddrPortFrom(e.ClientAddrs[0], 4321).String(), netip.AddrPortFrom(e.plain.HTTP().Addr(), 81).String()
	e.stops(t, explain.StepFrontend, "dropped: no-frontend", "flow", client, vip)
}

func (e *explaining) tooBig(t *testing.T) {
	client := netip.AddrPortFrom(e.ClientAddrs[0], 4321).String()
	e.completes(t, "flow", client, e.plain.HTTP().String(), "--payload", "1400")
	e.stops(t, explain.StepForwarded, "dropped: too-big", "flow", client, e.plain.HTTP().String(), "--payload", "1600")
}

func (e *explaining) noRoute(t *testing.T) {
	pod := e.Servers(web)[0]
	end := netip.AddrPortFrom(pod.Addr, fixture.HTTPTarget).String()
	nl := e.Lab.Host(e.balancer.Name).Netlink()
	unreachable := &netlink.Route{Dst: &net.IPNet{IP: pod.Addr.AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_UNREACHABLE}
	if err := nl.RouteAdd(unreachable); err != nil {
		t.Fatal(err)
	}
	e.warns(t, explain.StepReachable, end+": the kernel has no route to it", "service", "plain")
	e.stops(t, explain.StepHealth, "no route to host", "backend", end)
	if err := nl.RouteDel(unreachable); err != nil {
		t.Fatal(err)
	}
	e.completes(t, "backend", end)
}

func (e *explaining) drained(t *testing.T) {
	for _, c := range []struct{ verb, step, cause string }{{"drain", explain.StepAdvertised, "draining: this load balancer is draining: by command"}, {"undrain", "", ""}} {
		if _, errs, code := e.Fairlead(t, "", c.verb, "--socket", cluster.Socket(e.balancer.Name)); code != 0 {
			t.Fatal(errs)
		}
		if c.step == "" {
			e.completes(t, "service", "plain")
			continue
		}
		e.stops(t, c.step, c.cause, "service", "plain")
		e.stops(t, explain.StepRequested, c.cause, "route", e.plain.HTTP().Addr().String())
	}
}

func (e *explaining) peerDown(t *testing.T) {
	if err := e.Process(topology.Reflector).Kill(); err != nil {
		t.Fatal(err)
	}
	e.stops(t, explain.StepReceived, "no-session: no BGP session is established: with "+topology.ReflectorAddr.String(), "service", "plain")
	e.stops(t, explain.StepReceived, "the session is ", "route", e.plain.HTTP().Addr().String())
	if err := e.StartReflector(topology.Reflector); err != nil {
		t.Fatal(err)
	}
	e.completes(t, "route", e.plain.HTTP().Addr().String())
}

func (e *explaining) unmatched(t *testing.T) {
	const advertisement = "apiVersion: fairlead.io/v1alpha1\nkind: Advertisement\nmetadata: {name: edge}\nspec: {nodeSelector: {matchLabels: {rack: \"9\"}}}\n"
	if err := e.Write(web, "bgp.yaml", advertisement); err != nil {
		t.Fatal(err)
	}
	e.stops(t, explain.StepAdvertised, "no-matching-advertisement: no Advertisement is for it on this node", "service", "plain")
	e.stops(t, explain.StepRequested, "edge is for nodes with labels rack=9", "route", e.plain.HTTP().Addr().String())
}
