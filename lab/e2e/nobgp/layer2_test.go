package nobgp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

// flat is a network without a router: three load balancers share the VIPs on the only
// segment, and answers go straight to the client.
//
//	client 10.0.0.9 ──┐         ┌── lb1 10.0.0.1, lb2 .2, lb3 .3
//	                  ├─ switch ┤
//	                  ┘         └── web1 10.0.0.21, web2 .22
//
// All have fd00:: addresses too. The VIPs are in the segment's own prefix, as in most
// such networks.
type flat struct {
	*fixture.World
	t    *testing.T
	dir  string
	lab  *lab.Lab
	vips []netip.AddrPort
	lbs  map[string]*lab.Process
}

const flatVIPs = 6 // of each family

func newFlat(t *testing.T) *flat {
	t.Helper()
	testkit.WatchSources(t)
	f := &flat{World: &fixture.World{}, t: t, dir: t.TempDir(), lbs: map[string]*lab.Process{}}
	top := lab.Topology{Switches: []lab.SwitchSpec{{Name: "switch"}}}
	for name, n := range map[string]int{"client": 9, "lb1": 1, "lb2": 2, "lb3": 3, "web1": 21, "web2": 22} {
		addrs := []string{fmt.Sprintf("10.0.0.%d/24", n), fmt.Sprintf("fd00::%d/64", n)}
		if name == "client" {
			for i := range flatVIPs {
				addrs = append(addrs, clientOf(i, false).String()+"/24", clientOf(i, true).String()+"/64")
			}
		}
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name})
		top.Links = append(top.Links, lab.Link{A: lab.At(name, "eth0", addrs...).ForXDP(), B: lab.Port("switch").ForXDP()})
	}
	var err error
	if f.lab, err = lab.Build(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	for _, name := range []string{"web1", "web2"} {
		ln, err := f.lab.Host(name).Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		server := load.Serve(name, ln)
		t.Cleanup(func() { server.Kill() })
	}
	f.write()
	for _, name := range []string{"web1", "web2"} {
		f.start(name, "--role", "dsr")
	}
	return f
}

func (f *flat) close() {
	if f.t.Failed() {
		f.ShowLogs(f.t, f.dir)
	}
	if err := f.lab.Close(); err != nil {
		f.t.Error(err)
	}
	for _, left := range []string{cluster.BPFFS(""), filepath.Dir(cluster.Socket("lb1"))} {
		if err := os.RemoveAll(left); err != nil {
			f.t.Error(err)
		}
	}
}

// balancers is the Service that lists the load balancers.
const balancers = `apiVersion: v1
kind: Service
metadata: {name: balancers, namespace: lb}
spec: {clusterIP: None, ports: [{port: 179}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: balancers, namespace: lb, labels: {kubernetes.io/service-name: balancers}}
addressType: IPv4
ports: [{port: 179}]
endpoints: [{addresses: ["10.0.0.1"]}, {addresses: ["10.0.0.2"]}, {addresses: ["10.0.0.3"]}]
`

// write gives every VIP its own Service, tunneled to both backends, without health
// checks: on a busy machine a load balancer that misses a probe has another table for a
// while, which other tests cover.
func (f *flat) write() {
	f.t.Helper()
	var b strings.Builder
	b.WriteString(balancers)
	for i := range flatVIPs {
		for family, prefix := range map[string]string{"IPv4": "10.0.0.", "IPv6": "fd00::"} {
			name := fmt.Sprintf("web%d-%s", i, strings.ToLower(family))
			vip := netip.MustParseAddr(fmt.Sprintf("%s%d", prefix, 100+i))
			f.vips = append(f.vips, netip.AddrPortFrom(vip, 80))
			fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata:
  name: %s
  annotations: {fairlead.io/addresses: %q, fairlead.io/health-check: none}
spec:
  type: LoadBalancer
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s
  labels: {kubernetes.io/service-name: %s}
addressType: %s
ports: [{port: 80}]
endpoints: [{addresses: [%q]}, {addresses: [%q]}]
`, name, vip, name, name, family, prefix+"21", prefix+"22")
		}
	}
	if err := os.WriteFile(filepath.Join(f.dir, "web.yaml"), []byte(b.String()), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// start starts an agent on the host with its name.
func (f *flat) start(name string, args ...string) *lab.Process {
	f.t.Helper()
	log, err := os.OpenFile(filepath.Join(f.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(fixture.Binary, append([]string{"agent", "--manifest-dir", f.dir, "--node", name,
		"--bpffs", cluster.BPFFS(name), "--socket", cluster.Socket(name)}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := f.lab.Host(name).Start(cmd)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *flat) balancer(name string) {
	f.t.Helper()
	members := []string{"--balancers", "lb/balancers"}
	if name == "lb3" {
		members = []string{"--l2-members", "10.0.0.1,10.0.0.2,10.0.0.3"}
	}
	f.lbs[name] = f.start(name, append(members, "--l2-interfaces", "eth0")...)
}

// owners returns which load balancer claims to answer for which VIP. It returns an error
// if one of them has not received every other's offers, because more VIPs may still move.
func (f *flat) owners(names ...string) (map[netip.AddrPort]string, error) {
	owner := map[netip.AddrPort]string{}
	for _, name := range names {
		out, errs, code := f.Fairlead(f.t, "", "get", "routes", "-o", "json", "--socket", cluster.Socket(name))
		if code != 0 {
			return nil, fmt.Errorf("fairlead get routes exits with %d: %s", code, errs)
		}
		var routes []status.Route
		if err := json.Unmarshal([]byte(out), &routes); err != nil {
			return nil, err
		}
		for _, r := range routes {
			vip := netip.AddrPortFrom(r.Prefix.Addr(), 80)
			if r.Layer2 == nil || !r.Advertised || len(names) > 1 && !strings.Contains(r.Layer2.Reason, fmt.Sprintf("of %d members", len(names))) {
				return nil, fmt.Errorf("%s: %+v: %+v", name, r, r.Layer2)
			}
			if r.Layer2.State != "owner" {
				continue
			}
			if owner[vip] != "" {
				return nil, fmt.Errorf("%s is owned by %s and %s", vip, owner[vip], name)
			}
			owner[vip] = name
		}
	}
	if len(owner) != len(f.vips) {
		return nil, fmt.Errorf("%d of %d VIPs have an owner", len(owner), len(f.vips))
	}
	return owner, nil
}

func (f *flat) settled(names ...string) (owners map[netip.AddrPort]string) {
	f.t.Helper()
	testkit.Eventually(f.t, fixture.Within, func() (err error) {
		owners, err = f.owners(names...)
		return err
	})
	return owners
}

// TestLayer2 serves real connections without a router: frames reach a load balancer
// because it answered ARP or neighbor discovery, and the XDP program handles them. Losing
// the load balancer breaks no connection, because the next one chooses the same backends.
func TestLayer2(t *testing.T) {
	f := newFlat(t)
	for _, name := range []string{"lb1", "lb2", "lb3"} {
		f.balancer(name)
	}
	before := f.settled("lb1", "lb2", "lb3")
	for _, vip := range f.vips {
		fixture.BothAnswer(t, f.lab, vip)
	}
	clients := f.clients()
	busy := func() {
		var marks []load.Mark
		for _, c := range clients {
			marks = append(marks, c.Mark())
		}
		for i, c := range clients {
			testkit.Eventually(t, fixture.Within, func() error {
				if n := c.Since(marks[i]).Requests; n < 20 {
					return fmt.Errorf("%s: %d requests", f.vips[i], n)
				}
				return nil
			})
		}
	}
	busy()

	// The machine is gone, with its program: its link is cut.
	cut := time.Now()
	if err := f.lab.Cut("lb2", "eth0"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, fixture.Within, func() error {
		after, err := f.owners("lb1", "lb3")
		for vip, is := range after {
			if was := before[vip]; was != "lb2" && was != is {
				err = fmt.Errorf("%s moved from %s to %s, although %s is up", vip, was, is, was)
			}
		}
		return err
	})
	t.Logf("all VIPs of lb2 have another owner after %s", time.Since(cut))
	busy()
	if err := f.lab.Restore("lb2", "eth0"); err != nil {
		t.Fatal(err)
	}
	f.settled("lb1", "lb2", "lb3")
	busy()

	// Only the agent is killed; a graceful shutdown hands over without interruption.
	if err := f.lbs["lb1"].Kill(); err != nil {
		t.Fatal(err)
	}
	f.settled("lb2", "lb3")
	busy()
	if err := f.lbs["lb3"].Stop(fixture.Within); err != nil {
		t.Errorf("lb3 exits with %v", err)
	}
	f.settled("lb2")
	busy()
	f.balancer("lb1")
	f.balancer("lb3")
	testkit.Eventually(t, fixture.Within, func() error {
		now, err := f.owners("lb1", "lb2", "lb3")
		if err == nil && fmt.Sprint(now) != fmt.Sprint(before) {
			err = fmt.Errorf("owners %v, were %v", now, before)
		}
		return err
	})
	busy()
	for i, c := range clients {
		c.Stop()
		if n := c.Total(); n.Failed+n.BrokenConnections > 0 {
			t.Errorf("%s: %d of %d requests failed, %d connections broke: %v", f.vips[i], n.Failed, n.Requests, n.BrokenConnections, n.Reasons)
		}
		f.asksAgain(f.vips[i].Addr())
	}
}

// clientOf returns the address from which the client connects to VIP i of a family:
// connections from one address and port through two VIPs may reach the same port of one
// backend, which takes them for the same one and rejects the second.
func clientOf(i int, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%d", 150+i))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 150+i))
}

// clients starts some long-lived connections to each VIP.
func (f *flat) clients() (all []*load.Client) {
	f.t.Helper()
	for n, vip := range f.vips {
		local := clientOf(n/2, vip.Addr().Is6())
		c, err := load.Start(f.t.Context(), load.Config{
			Dial: f.lab.Host("client").Dial, Target: vip, Locals: []netip.Addr{local}, Timeout: fixture.Within, KeepAlive: 4, KeepAliveRate: 40,
		})
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(c.Stop)
		all = append(all, c)
	}
	return all
}

// asksAgain makes the client's kernel probe the VIP by its Ethernet address only: such a
// probe reaches the XDP program like any packet for the VIP.
func (f *flat) asksAgain(vip netip.Addr) {
	f.t.Helper()
	h, asked := f.lab.Host("client").Netlink(), false
	testkit.Eventually(f.t, fixture.Within, func() error {
		entries, err := h.NeighList(0, unix.AF_UNSPEC)
		for _, e := range entries {
			if a, _ := netip.AddrFromSlice(e.IP); a.Unmap() != vip {
				continue
			}
			switch {
			case asked && e.State == unix.NUD_REACHABLE:
				return nil
			case e.State != unix.NUD_PROBE: // also if another member has announced itself since, which ends the probe
				e.State, asked = unix.NUD_PROBE, true
				err = h.NeighSet(&e)
			}
		}
		return errors.Join(err, fmt.Errorf("the client resolved %s again (%v), without an entry: %v", vip, asked, entries))
	})
}
