package upgrade_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/client"
)

// networks is a domain of virtual networks: a controller, the daemons of two nodes, and
// traffic within a network and, without success, to another.
type networks struct {
	*domain.Domain
	*client.Client
	dir       string
	binary    string
	processes map[string]*lab.Process
	within    []*load.Client
	sent      atomic.Uint64
	strayed   atomic.Uint64 // what reached another network
	leases    int
}

const strayPort = 4242

func newNetworks(t *testing.T) *networks {
	t.Helper()
	testkit.WatchSources(t)
	d, err := domain.Build(t.Context(), domain.Macvlan)
	if err != nil {
		t.Fatal(err)
	}
	n := &networks{Domain: d, dir: t.TempDir(), binary: previous(), processes: map[string]*lab.Process{}}
	t.Cleanup(func() { n.close(t) })
	if n.Client, err = client.New(client.Config{URL: n.url()}); err != nil {
		t.Fatal(err)
	}
	n.controller(t)
	n.describe(t)
	for _, name := range []string{"a1", "a2", "b1", "b2"} {
		n.attach(t, name)
	}
	for _, name := range []string{"n1", "n2"} {
		n.node(t, name)
	}
	n.traffic(t)
	return n
}

func (n *networks) url() string { return "unix://" + filepath.Join(n.dir, "api.sock") }

// start runs a command of the current version in a host.
func (n *networks) start(t *testing.T, host, name string, args ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(n.binary, append([]string{"vdn"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if n.processes[name], err = n.Host(host).Start(cmd); err != nil {
		t.Fatal(err)
	}
}

func (n *networks) controller(t *testing.T) {
	t.Helper()
	n.start(t, "outside", "controller", "controller", "--data", filepath.Join(n.dir, "store"), "--domain", "here.example", "--listen", n.url())
	testkit.Eventually(t, fixture.Within, func() error { return n.Health(t.Context()) })
}

// node starts a node's daemon, and waits until it enforces the controller's plan.
func (n *networks) node(t *testing.T, name string) {
	t.Helper()
	started := time.Now()
	n.start(t, name, name, "agent", "--name", name, "--uplink", domain.Uplink+"=100M", "--controller", n.url(),
		"--bpffs", filepath.Join("/sys/fs/bpf", name), "--data", filepath.Join(n.dir, name), "--socket", filepath.Join(n.dir, name+".sock"))
	testkit.Eventually(t, fixture.Within, func() error {
		view, _, err := n.View(t.Context(), 0, 0)
		if err != nil {
			return err
		}
		plan, _, err := n.Client.Plan(t.Context(), name, 0, 0)
		if err != nil {
			return err
		}
		for _, one := range view.Nodes {
			if one.Name == name && one.Applied == plan.Revision && one.ReportAge < time.Since(started).Seconds() {
				return nil
			}
		}
		return fmt.Errorf("%s does not enforce revision %d: %+v", name, plan.Revision, view.Nodes)
	})
}

// describe configures both networks.
func (n *networks) describe(t *testing.T) {
	t.Helper()
	var text bytes.Buffer
	fmt.Fprintln(&text, "networks:")
	for _, name := range []string{domain.Science, domain.Visitors} {
		fmt.Fprintf(&text, "- name: %s\n  devices: [%s]\n  maxRatePerHost: 50M\n  subnets:\n", name, domain.Uplink)
		for _, p := range domain.Prefixes(name) {
			fmt.Fprintf(&text, "  - {cidr: %s, gateway: %s}\n", p, p.Addr().Next())
		}
	}
	file := filepath.Join(n.dir, "networks.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(n.binary, "vdn", "apply", "-f", file, "--controller", n.url()).CombinedOutput(); err != nil {
		t.Fatalf("vdn apply: %v: %s", err, out)
	}
}

// attach does for a pod what fairlead-cni does.
func (n *networks) attach(t *testing.T, name string) {
	t.Helper()
	p := n.Pods[name]
	lease, err := n.Attach(t.Context(), vdn.AttachmentRequest{
		Network: p.Att.Network, Node: p.Att.Node, Container: p.Att.Container, Interface: p.Att.Interface, Addresses: p.Addrs,
	})
	if err != nil {
		t.Fatal(err)
	}
	up := vdn.UpReport{Device: p.Att.Device, MAC: p.Att.MAC, NetNS: p.Att.NetNS}
	if _, err := n.Up(t.Context(), lease.Attachment.ID, up); err != nil {
		t.Fatal(err)
	}
}

// traffic starts HTTP within each network, and datagrams from one to the other through
// the gateway, which must be dropped.
func (n *networks) traffic(t *testing.T) {
	t.Helper()
	for _, pair := range [][2]string{{"a1", "a2"}, {"b1", "b2"}} {
		ln, err := n.Host(pair[1]).Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		server := load.Serve(pair[1], ln)
		t.Cleanup(func() { _ = server.Kill() })
		c, err := load.Start(t.Context(), load.Config{
			Dial: n.Host(pair[0]).Dial, Target: netip.AddrPortFrom(n.Pods[pair[1]].Addrs[0], 80), KeepAlive: 10, KeepAliveRate: 40, OneShotRate: 20, Timeout: 20 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Stop)
		n.within = append(n.within, c)
	}
	listener, err := n.Host("b2").ListenPacket("udp", fmt.Sprintf(":%d", strayPort))
	if err != nil {
		t.Fatal(err)
	}
	n.stray(t, listener)
}

// stray sends datagrams to another network until the test ends.
func (n *networks) stray(t *testing.T, listener net.PacketConn) {
	t.Helper()
	sender, err := n.Host("a1").ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = listener.Close(), sender.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			if _, _, err := listener.ReadFrom(b); err != nil {
				return
			}
			n.strayed.Add(1)
		}
	}()
	go func() {
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Pods["b2"].Addrs[0], strayPort))
		for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
			if _, err := sender.WriteTo([]byte("stray"), to); err != nil {
				return
			}
			n.sent.Add(1)
		}
	}()
}

// unharmed calls do, which must break no connection, let nothing through between the
// networks, and keep every lease.
func (n *networks) unharmed(t *testing.T, what string, do func()) {
	t.Helper()
	leases, sent := n.held(t), n.sent.Load()
	marks := make([]load.Mark, len(n.within))
	for i, c := range n.within {
		marks[i] = c.Mark()
	}
	do()
	for i, c := range n.within {
		if err := c.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lost := c.Since(marks[i]); lost.Failed+lost.BrokenConnections > 0 || lost.Requests == 0 {
			t.Errorf("%s: %d requests, %d failed, %d connections broke: %v", what, lost.Requests, lost.Failed, lost.BrokenConnections, lost.Reasons)
		}
	}
	if strayed := n.strayed.Load(); strayed > 0 || n.sent.Load() == sent {
		t.Errorf("%s: %d of %d datagrams reached another network", what, strayed, n.sent.Load()-sent)
	}
	if now := n.held(t); !slices.Equal(now, leases) {
		t.Errorf("%s: leases are %v, were %v", what, now, leases)
	}
	n.lease(t)
	if t.Failed() {
		t.FailNow()
	}
}

// held lists the leases.
func (n *networks) held(t *testing.T) (all []string) {
	t.Helper()
	list, err := n.Attachments(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		all = append(all, fmt.Sprint(a.ID, " ", a.Network, " ", a.Addresses))
	}
	slices.Sort(all)
	return all
}

// lease requests another lease, whose address nobody may have.
func (n *networks) lease(t *testing.T) {
	t.Helper()
	n.leases++
	lease, err := n.Attach(t.Context(), vdn.AttachmentRequest{Network: domain.Science, Node: "n1", Container: fmt.Sprint("c", n.leases), Interface: "net0"})
	if err != nil {
		t.Fatal(err)
	}
	owners := map[netip.Prefix]string{}
	list, err := n.Attachments(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		for _, addr := range a.Addresses {
			if other := owners[addr]; other != "" {
				t.Errorf("%s is leased to %s and %s", addr, other, a.ID)
			}
			owners[addr] = a.ID
		}
	}
	if len(lease.Attachment.Addresses) == 0 {
		t.Errorf("%s got no address", lease.Attachment.ID)
	}
}

// again restarts a process with the current version.
func (n *networks) again(t *testing.T, name string, how syscall.Signal, start func()) {
	t.Helper()
	p := n.processes[name]
	if err := p.Signal(how); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	start()
}

func (n *networks) close(t *testing.T) {
	for name, p := range n.processes {
		if err := p.Stop(fixture.Within); err != nil && !t.Failed() {
			t.Errorf("%s exits with %v", name, err)
		}
		if t.Failed() {
			n.show(t, name)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"n1", "n2"} {
		if err := os.RemoveAll(filepath.Join("/sys/fs/bpf", name)); err != nil {
			t.Error(err)
		}
	}
}

func (n *networks) show(t *testing.T, name string) {
	f, err := os.Open(filepath.Join(n.dir, name+".log"))
	if err != nil {
		return
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
}

// TestNetworks upgrades the controller of virtual networks and the nodes' daemons, and
// downgrades them: controllers are upgraded first, and downgraded last, as in
// docs/upgrade.md.
func TestNetworks(t *testing.T) {
	needsVersions(t)
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			n := newNetworks(t)
			controller := func(version string) {
				n.unharmed(t, "controller to "+version, func() { n.again(t, "controller", how, func() { n.controller(t) }) })
			}
			nodes := func(version string) {
				for _, name := range []string{"n1", "n2"} {
					n.unharmed(t, name+" to "+version, func() { n.again(t, name, how, func() { n.node(t, name) }) })
				}
			}
			n.unharmed(t, "nothing", func() { time.Sleep(time.Second) })
			n.binary = next()
			controller("N+1")
			nodes("N+1")
			n.binary = previous()
			nodes("N")
			controller("N")
		})
	}
}
