package diff_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/diff"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// connections is the number of connections that are open during each change.
const connections = 60

// state is a Service before or after a change.
type state struct {
	deleted     bool
	port        int      // 0: 8080
	annotations []string // without their prefix
	backends    int      // how many of the pods it has; 0: three
	drained     bool     // the first backend drains
}

// change is a change of a Service, and what it breaks.
type change struct {
	name          string
	before, after state
	breaks        breakage
}

// breakage says what a change is expected to break, apart from what diff predicts.
type breakage int

const (
	none breakage = iota
	some
	all
)

const (
	hashOnly  = "connection-consistency: hash-only"
	flowTable = "connection-consistency: flow-table"
)

var changes = []change{
	{"add a backend", state{}, state{backends: 4}, none},
	{"add a backend, hash-only", state{annotations: []string{hashOnly}}, state{annotations: []string{hashOnly}, backends: 4}, some},
	{"remove a backend", state{backends: 4}, state{}, some},
	{"remove a backend, flow table", state{annotations: []string{"scheduler: rr"}, backends: 4}, state{annotations: []string{"scheduler: rr"}}, some},
	{"drain a backend", state{}, state{drained: true}, none},
	{"drain a backend, hash-only", state{annotations: []string{hashOnly}}, state{annotations: []string{hashOnly}, drained: true}, some},
	{"weight, hash-only", state{annotations: []string{hashOnly}}, state{annotations: []string{hashOnly, "weights: FIRST=5"}}, some},
	{"table size, hash-only", state{annotations: []string{hashOnly}}, state{annotations: []string{hashOnly, "maglev-table-size: \"1009\""}}, some},
	{"scheduler, hash-only", state{annotations: []string{hashOnly}}, state{annotations: []string{hashOnly, "scheduler: sh"}}, some},
	{"table size", state{}, state{annotations: []string{"maglev-table-size: \"1009\""}}, some},
	{"source ranges", state{}, state{annotations: []string{"deny-source-ranges: CLIENT/32"}}, some},
	{"flow table to hash", state{annotations: []string{"scheduler: rr"}}, state{annotations: []string{hashOnly}}, some},
	{"scheduler, flow table", state{annotations: []string{"scheduler: rr"}}, state{annotations: []string{"scheduler: wlc"}}, none},
	{"forwarding mode", state{}, state{annotations: []string{"forwarding-mode: dsr-nat"}}, none},
	{"forwarding mode to fullnat", state{}, state{annotations: []string{"forwarding-mode: fullnat"}}, all},
	{"consistency", state{annotations: []string{hashOnly}}, state{annotations: []string{flowTable}}, none},
	{"port", state{}, state{port: 8081}, all},
	{"delete the Service", state{}, state{deleted: true}, all},
}

// world is one load balancer with four backends.
type world struct {
	*fixture.World
	balancer topology.Pod
	port     int // of the last connection, below those that the kernel selects
}

// TestDiffPredictsWhatBreaks changes a Service of its own for each row, with open
// connections: as many break as fairlead diff says before.
func TestDiffPredictsWhatBreaks(t *testing.T) {
	w := &world{World: fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 4}, 4)}
	w.write(t, "anchor.yaml", w.manifest("anchor", 200, state{})) // the prefix remains advertised
	w.balancer = w.NewBalancer(t, 0, "--xdp-mode", "generic")
	breaking := 0
	for i, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			if w.change(t, fmt.Sprintf("s%d", i), 10+i, c) > 0 {
				breaking++
			}
		})
	}
	if len(changes) < 10 || breaking < 5 {
		t.Errorf("%d of %d changes broke connections; want at least five of ten", breaking, len(changes))
	}
}

// change makes a change under open connections, and returns how many broke.
func (w *world) change(t *testing.T, name string, host int, c change) int {
	file := name + ".yaml"
	vip := netip.AddrPortFrom(w.vip(host), 8080)
	w.write(t, file, w.manifest(name, host, c.before))
	w.same(t, file, w.manifest(name, host, c.before))
	w.received(t, vip)
	conns := w.open(t, vip)

	after := w.manifest(name, host, c.after)
	report := w.diff(t, file, after, c.after.deleted)
	tracked := 0
	for _, f := range report.Frontends {
		tracked += f.Connections
	}
	if tracked != connections {
		t.Errorf("diff counts %d connections of %d: %+v", tracked, connections, report)
	}
	if again := w.diff(t, file, after, c.after.deleted); again.Connections != report.Connections {
		t.Errorf("a second diff predicts %d, the first %d", again.Connections, report.Connections)
	}
	if broken := countBroken(conns[:1]); broken > 0 {
		t.Error("diff itself breaks a connection")
	}

	if c.after.deleted {
		w.remove(t, file)
		w.unserved(t, vip)
	} else {
		w.write(t, file, after)
		w.same(t, file, after)
		if c.after.port != 0 {
			w.unserved(t, vip)
		}
	}
	broken := countBroken(conns)
	t.Logf("%d connections: %d predicted to break, %d broke: %+v", connections, report.Connections, broken, report.Frontends)
	if broken != report.Connections {
		t.Errorf("%d connections broke, diff predicted %d: %+v", broken, report.Connections, report)
	}
	expected := map[breakage]bool{none: broken == 0, some: broken > 0 && broken < connections, all: broken == connections}
	if !expected[c.breaks] {
		t.Errorf("%d of %d connections broke", broken, connections)
	}
	w.remove(t, file)
	return broken
}

func (w *world) vip(host int) netip.Addr {
	a := w.Services[0].Prefix.Addr().As4()
	a[3] = byte(host)
	return netip.AddrFrom4(a)
}

// manifest returns the text of a Service, empty if it is deleted.
func (w *world) manifest(name string, host int, s state) string {
	if s.deleted {
		return ""
	}
	var b strings.Builder
	port, pods := s.port, w.Servers(0)[:max(s.backends, 3)]
	if port == 0 {
		port = 8080
	}
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  creationTimestamp: \"2026-01-01T00:00:00Z\"\n  annotations:\n", name)
	for _, a := range append([]string{
		fmt.Sprintf("addresses: %s", w.vip(host)), fmt.Sprintf("advertise-prefixes: %s", w.Services[0].Prefix),
		"health-check-interval: 10s", "health-check-timeout: 10s",
	}, s.annotations...) {
		fmt.Fprintf(&b, "    fairlead.io/%s\n", strings.NewReplacer("FIRST", pods[0].Addr.String(), "CLIENT", w.ClientAddrs[0].String()).Replace(a))
	}
	fmt.Fprintf(&b, "spec: {type: LoadBalancer, ports: [{port: %d}]}\n---\n", port)
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, labels: {kubernetes.io/service-name: %s}}\n", name, name)
	fmt.Fprintf(&b, "addressType: IPv4\nports: [{port: %d}]\nendpoints:\n", topology.ServerPort)
	for i, pod := range pods {
		conditions := "{ready: true}"
		if i == 0 && s.drained {
			conditions = "{ready: false, serving: true, terminating: true}"
		}
		fmt.Fprintf(&b, "- {addresses: [%q], conditions: %s}\n", pod.Addr, conditions)
	}
	return b.String()
}

func (w *world) write(t *testing.T, file, text string) {
	t.Helper()
	if err := w.Write(0, file, text); err != nil {
		t.Fatal(err)
	}
}

// remove removes a file from all folders.
func (w *world) remove(t *testing.T, file string) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(filepath.Dir(cluster.Manifests("any")), "*", file))
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// diff runs fairlead diff for a file, or for the folder without it.
func (w *world) diff(t *testing.T, file, text string, without bool) (r diff.Report) {
	t.Helper()
	out, errs, code := w.runDiff(t, file, text, without)
	if code != 1 {
		t.Fatalf("fairlead diff: exit code %d: %s%s", code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) runDiff(t *testing.T, file, text string, without bool) (out, errs string, code int) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, file)
	if without {
		path = dir
		others, _ := filepath.Glob(filepath.Join(cluster.Manifests(w.Services[0].Name), "*.yaml"))
		for _, other := range others {
			if b, err := os.ReadFile(other); err == nil && filepath.Base(other) != file {
				must(t, os.WriteFile(filepath.Join(dir, filepath.Base(other)), b, 0o600))
			}
		}
	} else {
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	args := []string{"diff", path, "-o", "json", "--socket", cluster.Socket(w.balancer.Name)}
	for _, node := range w.Nodes {
		flows, errs, code := w.Fairlead(t, "", "get", "flows", "--limit", "0", "-o", "json", "--socket", cluster.Socket(node.Name))
		if code != 0 {
			t.Fatalf("get flows: %d: %s", code, errs)
		}
		tracked := filepath.Join(t.TempDir(), node.Name+".json")
		must(t, os.WriteFile(tracked, []byte(flows), 0o600))
		args = append(args, "--flows", tracked)
	}
	return w.Fairlead(t, "", args...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same waits until the load balancer has programmed a file.
func (w *world) same(t *testing.T, file, text string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		if out, errs, code := w.runDiff(t, file, text, false); code != 0 {
			return fmt.Errorf("exit code %d: %s%s", code, out, errs)
		}
		return nil
	})
}

// received waits until every node accepts packets for a VIP. It opens no connection, which
// would be tracked, too.
func (w *world) received(t *testing.T, vip netip.AddrPort) {
	t.Helper()
	for _, node := range w.Nodes {
		testkit.Eventually(t, fixture.Within, func() error {
			out, errs, code := w.Fairlead(t, "", "get", "services", "-o", "json", "--socket", cluster.Socket(node.Name))
			if code != 0 || !strings.Contains(out, vip.Addr().String()) {
				return fmt.Errorf("%s: exit code %d: %s%s", node.Name, code, out, errs)
			}
			return nil
		})
	}
}

// unserved waits until nobody answers at a VIP.
func (w *world) unserved(t *testing.T, vip netip.AddrPort) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		out, errs, code := w.Fairlead(t, "", "get", "services", "-o", "json", "--socket", cluster.Socket(w.balancer.Name))
		if code != 0 {
			return fmt.Errorf("%d: %s", code, errs)
		}
		if strings.Contains(out, vip.String()) {
			return fmt.Errorf("%s is still there", vip)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // for packets in transit
}

// conn is a connection with its reader.
type conn struct {
	net.Conn
	from *bufio.Reader
}

// open opens connections and makes a request on each.
func (w *world) open(t *testing.T, vip netip.AddrPort) []conn {
	t.Helper()
	all := make([]conn, connections)
	for i := range all {
		c := w.dial(t, w.ClientAddrs[i%len(w.ClientAddrs)], vip)
		t.Cleanup(func() { c.Close() })
		if all[i] = (conn{c, bufio.NewReader(c)}); !all[i].works() {
			t.Fatal("a new connection does not work")
		}
	}
	return all
}

// dial opens a connection from a port that none before had: a backend's node rejects one
// through another VIP as long as the first has not ended (collision), as the broken ones.
func (w *world) dial(t *testing.T, from netip.Addr, to netip.AddrPort) (c net.Conn) {
	t.Helper()
	w.port++
	local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, uint16(20000+w.port)))
	err := w.Lab.Host(topology.Client).Do(func() (err error) {
		c, err = (&net.Dialer{LocalAddr: local}).DialContext(t.Context(), "tcp", to.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// works makes a request.
func (c conn) works() bool {
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: test\r\n\r\n")); err != nil {
		return false
	}
	resp, err := http.ReadResponse(c.from, nil)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// countBroken makes a request on all connections at the same time.
func countBroken(all []conn) (broken int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, c := range all {
		group.Go(func() {
			if !c.works() {
				mu.Lock()
				broken++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return broken
}
