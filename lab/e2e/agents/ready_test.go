package agents_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// ready waits until fairlead status --ready exits with a code, and prints these words.
func ready(t *testing.T, w *fixture.World, socket string, code int, words ...string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		stdout, stderr, got := w.Fairlead(t, "", "status", "--ready", "--socket", socket)
		if got != code || !fixture.HasAll(stdout+stderr, words) {
			return fmt.Errorf("exit code %d, output %q; want %d, %q", got, strings.TrimSpace(stdout+stderr), code, words)
		}
		return nil
	})
}

// TestReady checks that a load balancer is ready when its frontends are programmed and a
// peer has its routes, not when its socket answers.
func TestReady(t *testing.T) {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 1}, 1)
	w.HandIn(t, fixture.Spec{Name: "tunnel", Host: 1})
	for _, socket := range []string{socket.Default(status.RoleRouter), socket.Default(status.RoleReflector), cluster.Socket(w.Nodes[0].Name)} {
		ready(t, w, socket, 0, "ready")
	}
	reflector := w.Process(topology.Reflector)
	if err := reflector.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pod, err := w.AddBalancer(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	socket := cluster.Socket(pod.Name)
	ready(t, w, socket, 1, "is it running?")
	if err := w.StartBalancer(pod); err != nil {
		t.Fatal(err)
	}
	// Everything is ready except the session.
	w.Eventually(t, pod.Name, func(s status.Status) error {
		if len(s.Services) != 1 || s.Services[0].Frontends[0].State != "active" {
			return fmt.Errorf("services %+v", s.Services)
		}
		return nil
	})
	ready(t, w, socket, 1, "not ready: no BGP session is established: with "+topology.ReflectorAddr.String())
	if err := reflector.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ready(t, w, socket, 0, "ready")
	if r, err := status.FetchReady(t.Context(), socket); err != nil || !r.Ready || len(r.Waits) > 0 {
		t.Errorf("queried without the command: %+v, %v", r, err)
	}
}
