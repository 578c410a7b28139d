package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// eventful is an environment with one load balancer.
type eventful struct {
	*fixture.World
	balancer topology.Pod
	spec     fixture.Spec
}

// TestEvents lets a backend die, a peer go down, the load balancer drain and a manifest be
// wrong: its journal has exactly that, with the cause of each, also after it was killed.
func TestEvents(t *testing.T) {
	w := &eventful{
		World: fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2}, 2),
		spec: fixture.Spec{Name: "shop", Host: 1, Annotations: []string{
			"health-check: tcp", `health-check-port: "9000"`, "health-check-interval: 2s", "health-check-timeout: 2s"}},
	}
	var health []net.Listener
	for _, pod := range w.Servers(web) {
		l, err := w.Lab.Host(pod.Name).Listen("tcp", ":9000")
		if err != nil {
			t.Fatal(err)
		}
		w.CloseLater(l)
		health = append(health, l)
	}
	w.HandIn(t, w.spec)
	w.balancer = w.NewBalancer(t, web, "--graceful-shutdown-period", "100ms")
	stream := w.follow(t)
	dead := w.Servers(web)[0].Addr.String()
	w.happens(t, func() { health[0].Close() }, event.BackendUnhealthy)
	w.happens(t, func() { w.reflector(t) }, event.PeerDown, event.PeerEstablished)
	w.happens(t, func() { w.order(t, "drain") }, event.DrainStarted, event.DrainCompleted)
	w.happens(t, func() { w.order(t, "undrain") }, event.DrainEnded)
	w.happens(t, func() { w.breakManifest(t) }, event.ConfigRejected)
	route := w.Services[web].Prefix.String()
	self, peer := "Node "+w.balancer.Name, "BGPPeer "+topology.ReflectorAddr.String()
	want := []string{
		"AgentStarted " + self,
		"BackendUnhealthy Backend " + dead + " tcp port 9000: up -> down | connection refused",
		"ConfigRejected Service default/shop spec.ports[0].port | 80000",
		"DrainCompleted " + self + " | drained after | by command (fairlead drain)",
		"DrainEnded " + self,
		"DrainStarted " + self + " | graceful-shutdown | by command (fairlead drain)",
		"PeerDown " + peer + " | established -> idle",
		"PeerEstablished " + peer + " | -> established",
		"RouteAdvertised Route " + route,
		"RouteChanged Route " + route + " | graceful-shutdown",
		"RouteWithdrawn Route " + route + " | by command (fairlead drain)",
		"RoutesWithdrawn " + self,
	}
	before := w.events(t)
	compareEvents(t, before, want)
	w.ofService(t)
	w.ofReflector(t)
	w.killed(t)
	after := w.events(t)
	for _, e := range before {
		if !slices.ContainsFunc(after, func(a event.Event) bool { return a.ID == e.ID && a.Time.Equal(e.Time) && a.Count >= e.Count }) {
			t.Errorf("after a restart, %+v is missing", e)
		}
	}
	compareEvents(t, after, append(want, "BackendUnhealthy Backend "+dead+" tcp port 9000: unknown -> down", "ProgramsReplaced "+self))
	stream(after)
}

// events returns the events, except how often a peer that is down was tried.
func (w *eventful) events(t *testing.T) (all []event.Event) {
	t.Helper()
	w.Look(t, &all, "get", "events", "--since", "1h", "--socket", cluster.Socket(w.balancer.Name))
	return slices.DeleteFunc(all, func(e event.Event) bool { return e.Type == event.PeerUnreachable })
}

// happens does something, and waits until it is recorded.
func (w *eventful) happens(t *testing.T, do func(), types ...event.Type) {
	t.Helper()
	began := time.Now()
	do()
	testkit.Eventually(t, fixture.Within, func() error {
		all := w.events(t)
		for _, of := range types {
			if !slices.ContainsFunc(all, func(e event.Event) bool { return e.Type == of && e.Last.After(began) }) {
				return fmt.Errorf("no %s among %+v", of, all)
			}
		}
		return nil
	})
}

// kill kills a process, and waits until it has ended.
func (w *eventful) kill(t *testing.T, name string) {
	t.Helper()
	if err := w.Process(name).Kill(); err != nil {
		t.Fatal(err)
	}
	<-w.Process(name).Done()
}

// reflector kills the route reflector, and starts it again.
func (w *eventful) reflector(t *testing.T) {
	t.Helper()
	w.kill(t, topology.Reflector)
	if err := w.StartReflector(topology.Reflector); err != nil {
		t.Fatal(err)
	}
}

func (w *eventful) order(t *testing.T, what string) {
	t.Helper()
	out, errs, code := w.Fairlead(t, "", what, "--wait", fixture.Within.String(), "--socket", cluster.Socket(w.balancer.Name))
	if code != 0 {
		t.Fatalf("%s: %s%s", what, out, errs)
	}
}

// breakManifest makes the port of the Service invalid.
func (w *eventful) breakManifest(t *testing.T) {
	t.Helper()
	text := strings.Replace(w.spec.Manifest(w.World), "port: 8080", "port: 80000", 1)
	if err := w.Write(web, "shop.yaml", text); err != nil {
		t.Fatal(err)
	}
}

// ofService lists what concerns the Service as a table.
func (w *eventful) ofService(t *testing.T) {
	t.Helper()
	out, errs, code := w.Fairlead(t, "", "get", "events", "--service", "default/shop", "-o", "wide", "--socket", cluster.Socket(w.balancer.Name))
	for _, words := range []string{"BackendUnhealthy", "ConfigRejected", "RouteWithdrawn"} {
		if !strings.Contains(out, words) {
			t.Errorf("the events of the Service lack %s (%d %s):\n%s", words, code, errs, out)
		}
	}
	for _, words := range []string{"PeerDown", "DrainStarted"} {
		if strings.Contains(out, words) {
			t.Errorf("the events of the Service have %s:\n%s", words, out)
		}
	}
}

// ofReflector expects the session in the journal of the route reflector, too.
func (w *eventful) ofReflector(t *testing.T) {
	t.Helper()
	var all []event.Event
	w.Look(t, &all, "get", "events", "--type", string(event.PeerEstablished), "--socket", socket.Default(status.RoleReflector))
	if !slices.ContainsFunc(all, func(e event.Event) bool { return e.Object.Name == w.balancer.Addr.String() }) {
		t.Errorf("the reflector's events lack the session with %s: %+v", w.balancer.Addr, all)
	}
}

// killed kills the agent and starts another one, whose manifest is still wrong.
func (w *eventful) killed(t *testing.T) {
	t.Helper()
	time.Sleep(2 * time.Second) // events are stored once per second
	w.kill(t, w.balancer.Name)
	if err := w.StartBalancer(w.balancer, "--graceful-shutdown-period", "100ms"); err != nil {
		t.Fatal(err)
	}
	w.Eventually(t, w.balancer.Name, func(s status.Status) error {
		if len(s.Services) != 1 || s.Services[0].Frontends[0].State != plan.Active || len(s.Stale) != 1 || !s.Routes[0].Advertised {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // a rejection that is recorded again would be by then
}

// follow starts to read the stream of events; the returned function ends that, and expects
// each of some events, also those after a restart.
func (w *eventful) follow(t *testing.T) func(want []event.Event) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, fixture.Binary, "get", "events", "-w", "-o", "json", "--socket", cluster.Socket(w.balancer.Name))
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func(want []event.Event) {
		t.Helper()
		cancel()
		_ = cmd.Wait()
		last := map[uint64]event.Event{}
		for dec := json.NewDecoder(&out); dec.More(); {
			var e event.Event
			if err := dec.Decode(&e); err != nil {
				t.Fatal(err)
			}
			last[e.ID] = e
		}
		for _, e := range want {
			if got := last[e.ID]; got.Count != e.Count || got.Type != e.Type {
				t.Errorf("%+v is in the stream as %+v", e, got)
			}
		}
	}
}

// compareEvents expects one event for each line, in any order, which has the parts of the
// line.
func compareEvents(t *testing.T, all []event.Event, want []string) {
	t.Helper()
	left := slices.Clone(all)
	for _, line := range want {
		at := slices.IndexFunc(left, func(e event.Event) bool {
			text := fmt.Sprintf("%s %s %s: %s -> %s: %s", e.Type, e.Object, e.Field, e.From, e.To, e.Cause)
			return fixture.HasAll(text, strings.Split(line, " | "))
		})
		if at < 0 {
			t.Errorf("no event is %q", line)
			continue
		}
		left = slices.Delete(left, at, at+1)
	}
	for _, e := range left {
		t.Errorf("also recorded: %+v", e)
	}
}
