// Package world is shared by the end-to-end tests: the network of the papers with the
// real binary in it, and methods to inspect it and to send traffic.
package world

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Within is how long any step may take on a busy machine.
const Within = 30 * time.Second

// World is a cluster with methods to inspect it and to send traffic.
type World struct {
	*cluster.Cluster
	// Draining are the backends that are terminating.
	Draining map[string]bool
	// Since and Drained are the times at which backends began to serve, and to drain, for
	// those whose times the manifests contain.
	Since, Drained map[string]time.Time
	// taken is the number of client addresses in use.
	taken int
	// CloseLater registers a resource to close with the environment, not with a subtest.
	CloseLater func(io.Closer)
}

// New builds a network with only backends.
func New(t *testing.T, o paper.Options, servers int) *World {
	t.Helper()
	return NewBehind(t, cluster.RouterFairlead, o, servers)
}

// NewBehind builds it behind one of cluster.Routers. Nothing there uses BFD, which
// considers a process dead if it gets no CPU for a second.
func NewBehind(t *testing.T, router string, o paper.Options, servers int) *World {
	t.Helper()
	return build(t, cluster.Options{Router: router, Paper: o, NoBFD: true}, servers)
}

// NewWatched is NewBehind with BFD.
func NewWatched(t *testing.T, router string, o paper.Options, servers int) *World {
	t.Helper()
	return build(t, cluster.Options{Router: router, Paper: o}, servers)
}

// NewOf is NewBehind with another fairlead than Binary.
func NewOf(t *testing.T, binary, router string, o paper.Options, servers int) *World {
	t.Helper()
	return build(t, cluster.Options{Binary: binary, Router: router, Paper: o, NoBFD: true}, servers)
}

func build(t *testing.T, o cluster.Options, servers int) *World {
	t.Helper()
	testkit.WatchSources(t)
	o.Paper.ClientAddrs = 120
	logs := filepath.Join(os.Getenv("TMPDIR"), strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	o.Binary, o.Logs = cmp.Or(o.Binary, Binary), logs
	c, err := cluster.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w := &World{Cluster: c, Draining: map[string]bool{}, CloseLater: func(x io.Closer) { t.Cleanup(func() { x.Close() }) }}
	t.Cleanup(func() {
		if t.Failed() {
			w.ShowLogs(t, logs)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range c.Services {
		for range servers {
			w.NewServer(t, i)
		}
	}
	return w
}

// ShowLogs prints the end of every process's log.
func (w *World) ShowLogs(t *testing.T, dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		t.Logf("%s:\n%s", filepath.Base(file), bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
	}
}

// NewServer starts a backend with an HTTP server and a UDP echo server.
func (w *World) NewServer(t *testing.T, service int) paper.Pod {
	t.Helper()
	pod, err := w.AddServer(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	w.echo(t, pod.Name)
	return pod
}

// NewBalancer starts another load balancer and waits until the router sends it traffic.
func (w *World) NewBalancer(t *testing.T, service int, args ...string) paper.Pod {
	t.Helper()
	pod, err := w.Route(t.Context(), service, args...)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// HandIn writes the manifests of Services, with their current backends.
func (w *World) HandIn(t *testing.T, services ...Spec) {
	t.Helper()
	for _, s := range services {
		if err := w.Write(s.Of, s.Name+".yaml", s.Manifest(w)); err != nil {
			t.Fatal(err)
		}
	}
}

// Routed waits until the router's kernel has exactly these next hops for a prefix; none
// means no route.
func (w *World) Routed(t *testing.T, prefix netip.Prefix, hops ...netip.Addr) {
	t.Helper()
	slices.SortFunc(hops, netip.Addr.Compare)
	testkit.Eventually(t, Within, func() error {
		table, err := w.Table()
		if err != nil {
			return err
		}
		var have []netip.Addr
		for _, r := range table {
			if r.Prefix == prefix {
				for _, h := range r.Hops {
					have = append(have, h.Gateway)
				}
			}
		}
		slices.SortFunc(have, netip.Addr.Compare)
		if !slices.Equal(have, hops) {
			return fmt.Errorf("the router sends %s to %v, want %v", prefix, have, hops)
		}
		return nil
	})
}

// AwaitBack waits until a restarted load balancer has advertised again and the router
// sends it packets.
func (w *World) AwaitBack(t *testing.T, pod paper.Pod, started time.Time) {
	t.Helper()
	w.Eventually(t, pod.Name, func(s status.Status) error {
		if s.Started.Before(started) {
			return fmt.Errorf("the previous agent of %s answers", pod.Name)
		}
		if len(s.Services) == 0 {
			return fmt.Errorf("no services yet")
		}
		for _, r := range s.Routes {
			if !r.Advertised {
				return fmt.Errorf("route %s is not announced: %s", r.Prefix, r.Reason)
			}
		}
		return nil
	})
	testkit.Eventually(t, Within, func() error {
		if want := w.NextHops(pod.Service); !w.RouterHas(pod.Service, want) {
			return fmt.Errorf("the router has not the next hops %v", want)
		}
		return nil
	})
}
