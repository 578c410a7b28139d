package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/status"
)

// within is how long anything may take on a busy machine.
const within = 30 * time.Second

// world is a cluster with the means to look at it and to talk to it.
type world struct {
	*cluster.Cluster
	// draining are the servers that end.
	draining map[string]bool
	// taken are the client's addresses that have been given away.
	taken int
	// closeLater closes something with the world, not with a story.
	closeLater func(io.Closer)
}

// newWorld builds a network with nothing but servers.
func newWorld(t *testing.T, o paper.Options, servers int) *world {
	t.Helper()
	return newWorldBehind(t, cluster.RouterFairlead, o, servers)
}

// newWorldBehind builds it behind one of cluster.Routers.
func newWorldBehind(t *testing.T, router string, o paper.Options, servers int) *world {
	t.Helper()
	testkit.WatchSources(t)
	o.ClientAddrs = 120
	logs := filepath.Join(os.Getenv("TMPDIR"), strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), cluster.Options{Binary: binary, Router: router, Logs: logs, Paper: o})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, draining: map[string]bool{}, closeLater: func(x io.Closer) { t.Cleanup(func() { x.Close() }) }}
	t.Cleanup(func() {
		if t.Failed() {
			w.showLogs(t, logs)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range c.Services {
		for range servers {
			w.addServer(t, i)
		}
	}
	return w
}

// showLogs prints the end of every process's log.
func (w *world) showLogs(t *testing.T, dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		t.Logf("%s:\n%s", filepath.Base(file), bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
	}
}

// addServer starts a server for HTTP and one that echoes datagrams.
func (w *world) addServer(t *testing.T, service int) paper.Pod {
	t.Helper()
	pod, err := w.AddServer(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	w.echo(t, pod.Name)
	return pod
}

// balancer starts one more balancer and waits until traffic comes its way.
func (w *world) balancer(t *testing.T, service int, args ...string) paper.Pod {
	t.Helper()
	pod, err := w.Route(t.Context(), service, args...)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// write hands a Service in, with the servers that are there now.
func (w *world) write(t *testing.T, services ...spec) {
	t.Helper()
	for _, s := range services {
		if err := w.Write(s.of, s.name+".yaml", s.manifest(w)); err != nil {
			t.Fatal(err)
		}
	}
}

// fairlead runs a command to its end, in a host or, where that is empty,
// outside of all, and gives its outputs and exit code.
func (w *world) fairlead(t *testing.T, host string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if host == "" {
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	p, err := w.Lab.Host(host).Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(within):
		p.Kill()
		<-p.Done()
		t.Errorf("fairlead %s in %s did not end by itself; it said:\n%s", strings.Join(args, " "), host, errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// status asks an agent as people do: by fairlead status -o json.
func (w *world) status(t *testing.T, agent string) (status.Status, error) {
	t.Helper()
	var s status.Status
	out, errs, code := w.fairlead(t, "", "status", "-o", "json", "--socket", cluster.Socket(agent))
	if code != 0 {
		return s, fmt.Errorf("fairlead status ends with %d: %s", code, errs)
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// eventually waits until an agent's status is as it should be.
func (w *world) eventually(t *testing.T, agent string, want func(status.Status) error) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		s, err := w.status(t, agent)
		if err != nil {
			return err
		}
		return want(s)
	})
}

// routed waits until the router's kernel has just these next hops for a
// prefix; none for no route.
func (w *world) routed(t *testing.T, prefix netip.Prefix, hops ...netip.Addr) {
	t.Helper()
	slices.SortFunc(hops, netip.Addr.Compare)
	testkit.Eventually(t, within, func() error {
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

// back waits until a restarted balancer has announced again and the router
// sends it packets.
func (w *world) back(t *testing.T, pod paper.Pod, started time.Time) {
	t.Helper()
	w.eventually(t, pod.Name, func(s status.Status) error {
		if s.Started.Before(started) {
			return fmt.Errorf("it is the former agent of %s that answers", pod.Name)
		}
		if len(s.Services) == 0 {
			return fmt.Errorf("no services yet")
		}
		for _, r := range s.Routes {
			if !r.Announced {
				return fmt.Errorf("route %s is not announced: %s", r.Prefix, r.Reason)
			}
		}
		return nil
	})
	testkit.Eventually(t, within, func() error {
		if want := w.NextHops(pod.Service); !w.RouterHas(pod.Service, want) {
			return fmt.Errorf("the router has not the next hops %v", want)
		}
		return nil
	})
}

// ownAddrs gives some of the client's addresses to one traffic alone. Through
// two VIPs, connections from the same address and port may meet at one port of
// one server, which takes them for the same.
func (w *world) ownAddrs(vip netip.AddrPort) []netip.Addr {
	const each = 4
	addrs := w.ClientAddrs
	if vip.Addr().Is6() {
		addrs = w.ClientAddrs6
	}
	w.taken = (w.taken + each) % (len(addrs) - each + 1)
	return addrs[w.taken : w.taken+each]
}

// traffic is HTTP load on one VIP.
type traffic struct {
	*load.Client
	name string
}

// load starts traffic, and waits until it flows.
func (w *world) load(t *testing.T, name string, vip netip.AddrPort, keepAlive int, oneShotRate float64) traffic {
	t.Helper()
	w.answers(t, vip)
	c, err := load.Start(t.Context(), load.Config{
		Dial: w.Lab.Host(paper.Client).Dial, Target: vip, Locals: w.ownAddrs(vip), Timeout: 20 * time.Second,
		KeepAlive: keepAlive, KeepAliveRate: float64(2 * keepAlive), OneShotRate: oneShotRate,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	tr := traffic{c, name}
	tr.settle(t)
	return tr
}

// settle waits for what is under way.
func (tr traffic) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	if err := tr.Settle(ctx); err != nil {
		t.Errorf("%s: requests do not end: %v", tr.name, err)
	}
}

// lost gives what was lost since a mark, once all of it has come out.
func (tr traffic) lost(t *testing.T, m load.Mark) load.Counts {
	t.Helper()
	tr.settle(t)
	return tr.Since(m)
}

// unhurt fails the test where a change that has settled cost anything.
func (tr traffic) unhurt(t *testing.T, m load.Mark, what string) {
	t.Helper()
	c := tr.Since(m)
	if c.Failed+c.BrokenConnections+c.Skipped > 0 || c.Requests == 0 {
		t.Errorf("%s, %s: of %d requests %d failed, %d connections broke, %d were not made: %v",
			what, tr.name, c.Requests, c.Failed, c.BrokenConnections, c.Skipped, c.Reasons)
	}
}

// during does something while all traffic flows and must not be hurt.
func during(t *testing.T, all []traffic, what string, do func()) {
	t.Helper()
	marks := make([]load.Mark, len(all))
	for i, tr := range all {
		marks[i] = tr.Mark()
	}
	do()
	var settling sync.WaitGroup
	for _, tr := range all {
		settling.Go(func() { tr.settle(t) })
	}
	settling.Wait()
	for i, tr := range all {
		tr.unhurt(t, marks[i], what)
	}
}
