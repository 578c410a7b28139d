package faults_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// TestVerdict runs three load balancers that agree, and then one that differs.
func TestVerdict(t *testing.T) {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 3}, 2)
	s := fixture.Spec{Name: "web", Host: 1, Annotations: []string{"health-check: none"}}
	w.HandIn(t, s)
	sockets := []string{socket.Default(status.RoleRouter), socket.Default(status.RoleReflector)}
	for range 3 {
		sockets = append(sockets, cluster.Socket(w.NewBalancer(t, web).Name))
	}
	verdict := func(code int, sockets []string, want ...string) {
		t.Helper()
		testkit.Eventually(t, fixture.Within, func() error {
			out, errs, got := w.Fairlead(t, "", "status", "--agents", strings.Join(sockets, ","))
			if got != code || !fixture.HasAll(out, want) {
				return fmt.Errorf("no %s in\n%s", strings.Join(want, ", "), out+errs)
			}
			return nil
		})
	}
	verdict(0, sockets, "verdict: 5 of 5 nodes agree")

	third := w.Balancers(web)[2]
	weight := s
	backend := s.Servers(w)[0].Addr.String()
	weight.Annotations = append([]string{"weights: " + backend + "=3"}, s.Annotations...)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "web.yaml"), []byte(weight.Manifest(w)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Process(third.Name).Stop(fixture.Within); err != nil {
		t.Fatal(err)
	}
	if err := w.StartBalancer(third, "--manifest-dir", folder); err != nil {
		t.Fatal(err)
	}
	verdict(1, append(sockets, filepath.Join(folder, "none.sock")), "verdict: 1 of 6 nodes disagree", third.Name+": backend "+backend+":80 of ", "weight 3, others: weight 1; its manifest is another version",
		"none.sock did not answer")

	if err := w.Process(third.Name).Stop(fixture.Within); err != nil {
		t.Fatal(err)
	}
	if err := w.StartBalancer(third); err != nil {
		t.Fatal(err)
	}
	verdict(0, sockets, "verdict: 5 of 5 nodes agree")
	sockets[4] = ahead(t, sockets[4], filepath.Join(folder, "ahead.sock"))
	verdict(1, sockets, third.Name+": clock: at least ", " ahead, others: of ")
}

// ahead serves the status of another socket, with the clock a minute ahead: all processes of
// the lab have the clock of the machine.
func ahead(t *testing.T, socket, path string) string {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := status.FetchOnly(r.Context(), socket, selection.Selection{Tables: true})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		s.Time = s.Time.Add(time.Minute)
		_ = json.NewEncoder(w).Encode(s)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return path
}
