package faults_test

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/agent/sysdump"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// world is one load balancer in front of two backends on two nodes.
type world struct {
	*fixture.World
	// checked has health checks at a port of its own, plain has none.
	checked, plain fixture.Spec
	balancer       topology.Pod
	healthy        map[string]net.Listener // by backend
	dir            string
}

// fault is one that is set up, and how it is found.
type fault struct {
	name  string
	set   func(*testing.T, *world)
	unset func(*testing.T, *world)
	// host and socket are where it is looked for; empty: the load balancer's.
	host, socket func(*world) string
	// look are at most two commands that name the cause.
	look  []string
	cause string
	// found is in the summary of the sysdump; empty: the cause.
	found string
	// traffic is sent all the time.
	traffic func(*world) (to netip.AddrPort, bytes int)
}

// checkedPort is the port of the health checks.
const checkedPort = 9001

func newWorld(t *testing.T) *world {
	w := &world{
		World:   fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2}, 2),
		checked: fixture.Spec{Name: "checked", Host: 1, OwnRoute: true, Annotations: []string{"health-check: http", fmt.Sprintf("health-check-port: %q", fmt.Sprint(checkedPort)), "health-check-interval: 1s", "health-check-timeout: 1s", "panic-mode: disabled"}},
		plain:   fixture.Spec{Name: "plain", Host: 2, OwnRoute: true, Annotations: []string{"health-check: none"}},
		healthy: map[string]net.Listener{}, dir: t.TempDir(),
	}
	for _, pod := range w.Servers(web) {
		w.heal(t, pod)
	}
	w.HandIn(t, w.checked, w.plain)
	var err error
	if w.balancer, err = w.AddBalancer(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if err := w.StartBalancer(w.balancer, "--max-frontends", "4"); err != nil { // as many as the two Services have
		t.Fatal(err)
	}
	w.recovers(t)
	return w
}

// TestFaults sets up one fault after the other.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	fine := w.dump(t, w.balancer.Name, cluster.Socket(w.balancer.Name))
	if !strings.Contains(fine, "findings: 0 broken") {
		t.Errorf("without a fault:\n%s", fine)
	}
	for _, f := range faults {
		if strings.Contains(fine, f.inSummary()) {
			t.Errorf("%s is found without it:\n%s", f.name, fine)
		}
		t.Run(f.name, func(t *testing.T) {
			began := time.Now()
			f.set(t, w)
			if f.traffic != nil {
				defer w.send(t, f)()
			}
			w.find(t, f)
			f.unset(t, w)
			w.recovers(t)
			t.Logf("%v", time.Since(began).Round(time.Millisecond))
		})
	}
	if len(faults) < 20 {
		t.Errorf("%d faults", len(faults))
	}
}

// at returns where a fault is looked for.
func (w *world) at(f fault) (host, socket string) {
	host, socket = w.balancer.Name, cluster.Socket(w.balancer.Name)
	if f.host != nil {
		host, socket = f.host(w), f.socket(w)
	}
	return host, socket
}

func (f fault) inSummary() string { return cmp.Or(f.found, f.cause) }

// find follows a fault to its cause, and finds it in a sysdump.
func (w *world) find(t *testing.T, f fault) {
	t.Helper()
	host, socket := w.at(f)
	if len(f.look) > 2 {
		t.Errorf("%d commands", len(f.look))
	}
	testkit.Eventually(t, fixture.Within, func() error {
		said := ""
		for _, command := range f.look {
			out, errs, _ := w.Fairlead(t, host, append(w.words(command), "--socket", socket)...)
			said += out + errs
		}
		if !strings.Contains(said, f.cause) {
			return fmt.Errorf("%q do not print %q, but\n%s", f.look, f.cause, said)
		}
		return nil
	})
	found := f.inSummary()
	testkit.Eventually(t, fixture.Within, func() error {
		summary := w.dump(t, host, socket)
		if !strings.Contains(summary, found) {
			return fmt.Errorf("no %q in\n%s", found, summary)
		}
		return nil
	})
}

// words are the arguments of a command, with the addresses that depend on the network.
func (w *world) words(command string) []string {
	replaced := strings.NewReplacer("BACKEND", netip.AddrPortFrom(w.Servers(web)[0].Addr, fixture.HTTPTarget).String(),
		"CLIENT", netip.AddrPortFrom(w.ClientAddrs[0], 4321).String(), "CHECKED", w.checked.HTTP().String(), "PLAIN", w.plain.HTTP().String()).Replace(command)
	return strings.Fields(replaced)
}

// dump makes a sysdump and returns its summary, which is also on top of the archive.
func (w *world) dump(t *testing.T, host, socket string) string {
	t.Helper()
	file := filepath.Join(w.dir, "dump.tar.gz")
	out, errs, code := w.Fairlead(t, host, "sysdump", "--socket", socket, "--observe", "300ms", "--file", file)
	if code != 0 {
		t.Fatalf("sysdump exits with %d: %s", code, errs)
	}
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	summary := ""
	err = sysdump.Each(archive, func(name string, text []byte) error {
		if summary == "" && !strings.HasSuffix(name, "/"+sysdump.SummaryFile) {
			t.Errorf("the first file is %s", name)
		}
		if summary == "" {
			summary = string(text)
		}
		return nil
	})
	if err != nil || summary == "" || !strings.HasPrefix(out, summary) {
		t.Fatalf("summary %q, printed %q: %v", summary, out, err)
	}
	return summary
}

// recovers waits until both Services work.
func (w *world) recovers(t *testing.T) {
	t.Helper()
	w.Eventually(t, w.balancer.Name, func(s status.Status) error {
		if len(s.Services) != 2 || s.Drain != nil || len(s.Problems) > 0 {
			return fmt.Errorf("%d Services, drain %v, problems %v", len(s.Services), s.Drain, s.Problems)
		}
		for _, v := range s.ExplainServices() {
			if !v.Advertised {
				return fmt.Errorf("%s is not advertised: %s", v.Service, v.Reason)
			}
		}
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				for _, b := range f.Backends {
					if !b.InService || b.Health == "down" {
						return fmt.Errorf("backend %+v", b)
					}
				}
			}
		}
		return nil
	})
}

// send sends datagrams until the returned function is called.
func (w *world) send(t *testing.T, f fault) (end func()) {
	t.Helper()
	to, size := f.traffic(w)
	var conn net.Conn
	err := w.Lab.Host(topology.Client).Do(func() (err error) {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.ClientAddrs[0], 4321)), net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, _ = conn.Write(make([]byte, size)) // ICMP errors are expected
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		conn.Close()
	}
}

// heal makes a backend pass its health checks.
func (w *world) heal(t *testing.T, pod topology.Pod) {
	t.Helper()
	w.healthy[pod.Name] = w.Heal(t, pod, checkedPort)
}
