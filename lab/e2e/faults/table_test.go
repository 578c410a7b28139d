package faults_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testnet"
	"github.com/fairlead/fairlead/lab/topology"
)

const (
	explainPlain   = "explain service plain"
	explainChecked = "explain service checked"
	explainBackend = "explain backend BACKEND"
)

var faults = []fault{
	{name: "backend down", set: func(_ *testing.T, w *world) { w.healthy[w.Servers(web)[0].Name].Close() }, unset: func(t *testing.T, w *world) { w.heal(t, w.Servers(web)[0]) },
		look: []string{explainChecked, explainBackend}, cause: "connection refused", found: "default/checked is down"},
	{name: "all backends down", set: func(_ *testing.T, w *world) { w.closeAll() }, unset: func(t *testing.T, w *world) { w.healAll(t) },
		look: []string{explainChecked}, cause: "no-healthy-backend: none of 2 backends passes its http health check"},
	{name: "port of the health check", set: changed(checked, `health-check-port: "9001"`, `health-check-port: "9999"`), unset: asBefore,
		look: []string{explainChecked, explainBackend}, cause: ":9999"},
	{name: "typo in an annotation", set: added(plain, "schedular: rr"), unset: asBefore, look: []string{explainPlain}, cause: `did you mean "fairlead.io/scheduler"?`},
	{name: "unknown field", set: edited(plain, "spec:\n", "spec:\n  sesionAffinity: ClientIP\n"), unset: asBefore, look: []string{"status"}, cause: "unknown field"},
	{name: "stale configuration", set: edited(plain, "port: 8080", "port: 80800"), unset: asBefore, look: []string{"status"}, cause: "the last valid version is in use", found: "its current version is rejected; the last valid one is in use"},
	{name: "no endpoints", set: func(t *testing.T, w *world) {
		text, _, _ := strings.Cut(w.plain.Manifest(w.World), "---\n")
		w.write(t, "plain.yaml", text)
	}, unset: asBefore, look: []string{explainPlain}, cause: "no-endpoints"},
	{name: "the address of another Service", set: func(t *testing.T, w *world) {
		other := w.plain
		other.Name = "usurper"
		w.write(t, "other.yaml", strings.ReplaceAll(other.Manifest(w.World), "2026-01-01", "2026-02-01"))
	}, unset: withoutOther, look: []string{"explain service usurper"}, cause: "conflict: Service default/plain already has"},
	{name: "full table", set: func(t *testing.T, w *world) {
		third := w.plain
		third.Name, third.Host = "third", 3
		w.write(t, "other.yaml", third.Manifest(w.World))
	}, unset: withoutOther, look: []string{"explain service third"}, cause: "(MaxFrontends, --max-frontends)"},
	{name: "no address", set: func(t *testing.T, w *world) {
		other := w.plain
		other.Name, other.Host = "pooled", 4
		w.write(t, "other.yaml", strings.Replace(other.Manifest(w.World), `fairlead.io/addresses: "10.1.1.4"`, "fairlead.io/address-pool: nosuch", 1))
	}, unset: withoutOther, look: []string{"explain service pooled"}, cause: "the Service has no address"},
	{name: "an advertisement that matches nothing", set: func(t *testing.T, w *world) {
		w.write(t, "other.yaml", "apiVersion: fairlead.io/v1alpha1\nkind: Advertisement\nmetadata: {name: edge}\nspec: {nodeSelector: {matchLabels: {rack: \"9\"}}}\n")
	}, unset: withoutOther, look: []string{explainPlain}, cause: "no-matching-advertisement"},
	{name: "access list", set: added(checked, `deny-source-ranges: "192.168.0.0/16"`), unset: asBefore, traffic: echoTo(checked, 10),
		look: []string{"drops", "explain flow CLIENT CHECKED --flags SYN"}, cause: "source-denied", found: "source-denied: "},
	{name: "port without a Service", set: nothing, unset: nothing, traffic: func(w *world) (netip.AddrPort, int) { return netip.AddrPortFrom(w.plain.HTTP().Addr(), 81), 10 },
		look: []string{"drops"}, cause: "no-frontend", found: "no-frontend: "},
	{name: "MTU", set: inBalancer("link set eth0 mtu 1400"), unset: inBalancer("link set eth0 mtu 1600"), traffic: echoTo(plain, 1400),
		look: []string{"drops", "doctor"}, cause: "mtu/eth0: ", found: "MTU 1400 of eth0 is below 1500"},
	{name: "no route to a backend", set: toBackend("add unreachable"), unset: toBackend("del unreachable"), look: []string{explainPlain}, cause: "the kernel has no route to it"},
	{name: "next hop that does not answer", set: viaNobody("add"), unset: viaNobody("del"), look: []string{explainPlain}, cause: "does not answer"},
	{name: "drained node", set: command("drain"), unset: command("undrain"), look: []string{explainPlain}, cause: "draining: by command", found: "draining"},
	{name: "peer down", set: func(t *testing.T, w *world) {
		if err := w.Process(topology.Reflector).Kill(); err != nil {
			t.Fatal(err)
		}
	}, unset: func(t *testing.T, w *world) {
		if err := w.StartReflector(topology.Reflector); err != nil {
			t.Fatal(err)
		}
	}, look: []string{explainPlain}, cause: "no-session: no BGP session is established"},
	{name: "rp_filter at a backend's node", set: atNode("sysctl -qw net.ipv4.conf.all.rp_filter=1"), unset: atNode("sysctl -qw net.ipv4.conf.all.rp_filter=0"), host: node, socket: nodeSocket,
		look: []string{"doctor"}, cause: "rp_filter of eth0 is strict"},
	{name: "asymmetric route", set: atNode("sysctl -qw net.ipv4.conf.all.rp_filter=1", "ip link add other type veth peer name another", "ip link set another up", "ip link set other up", "ip route add 192.168.0.0/24 dev other"),
		unset: atNode("sysctl -qw net.ipv4.conf.all.rp_filter=0", "ip link del other"), host: node, socket: nodeSocket,
		traffic: func(w *world) (netip.AddrPort, int) { return netip.AddrPortFrom(w.Nodes[0].Addr, 9), 10 },
		look:    []string{"doctor"}, cause: "rp_filter of eth0 is strict", found: "(asymmetric route), and rp_filter drops them"},
	{name: "node agent down", set: func(t *testing.T, w *world) {
		if err := w.Process(w.Nodes[0].Name).Kill(); err != nil {
			t.Fatal(err)
		}
	}, unset: func(t *testing.T, w *world) {
		if err := w.StartNode(w.Nodes[0]); err != nil {
			t.Fatal(err)
		}
	}, host: node, socket: nodeSocket, look: []string{"status"}, cause: "no agent answers on", found: "connection refused"},
	{name: "program detached", set: func(t *testing.T, w *world) { testnet.Detach(t, cluster.BPFFS(w.balancer.Name)) }, unset: restarted(), look: []string{"doctor"}, cause: "the agent attached its XDP program to eth0, and it is gone"},
	{name: "wrong AS", set: restarted("--local-asn", "65099"), unset: restarted(), look: []string{"get peers"}, cause: "AS"},
	{name: "wrong password", set: func(t *testing.T, w *world) {
		file := filepath.Join(w.dir, "password")
		if err := os.WriteFile(file, []byte("another one\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		restarted("--password-file", file)(t, w)
	}, unset: restarted(), look: []string{"get peers"}, cause: "the TCP MD5 passwords differ"},
	{name: "a peer has a password", set: func(t *testing.T, w *world) { restarted("--password-file", filepath.Join(w.dir, "password"))(t, w) }, unset: restarted(),
		host: func(*world) string { return topology.Reflector }, socket: func(*world) string { return socket.Default(topology.Reflector) },
		look: []string{"status"}, cause: "reflector", found: "a BGP peer has a password, and this side none"},
	{name: "BFD on one side only", set: restarted("--bfd=true"), unset: restarted(), look: []string{"get peers"}, cause: "down", found: "BFD is down"},
	{name: "disk full", set: func(t *testing.T, w *world) {
		dir := filepath.Join(w.dir, "state")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
			t.Fatal(err)
		}
		_ = os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 8192), 0o600) // as much as fits
		restarted("--state-dir", dir)(t, w)
	}, unset: func(t *testing.T, w *world) {
		restarted()(t, w)
		if err := unix.Unmount(filepath.Join(w.dir, "state"), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}, look: []string{"status"}, cause: "no space left on device"},
}

type change = func(*testing.T, *world)

func nothing(*testing.T, *world) {}

func checked(w *world) *fixture.Spec { return &w.checked }
func plain(w *world) *fixture.Spec   { return &w.plain }

func node(w *world) string       { return w.Nodes[0].Name }
func nodeSocket(w *world) string { return cluster.Socket(w.Nodes[0].Name) }

// edited hands in a Service with a changed text.
func edited(of func(*world) *fixture.Spec, from, to string) change {
	return func(t *testing.T, w *world) {
		text := of(w).Manifest(w.World)
		if !strings.Contains(text, from) {
			t.Fatalf("no %q in %s", from, text)
		}
		w.write(t, of(w).Name+".yaml", strings.Replace(text, from, to, 1))
	}
}

func changed(of func(*world) *fixture.Spec, from, to string) change { return edited(of, from, to) }

// added hands in a Service with one more annotation.
func added(of func(*world) *fixture.Spec, annotation string) change {
	return edited(of, "  annotations:\n", "  annotations:\n    fairlead.io/"+annotation+"\n")
}

func asBefore(t *testing.T, w *world) { w.HandIn(t, w.checked, w.plain) }

func withoutOther(t *testing.T, w *world) {
	for _, folder := range []string{w.Services[web].Name, "all"} {
		if err := os.Remove(filepath.Join(cluster.Manifests(folder), "other.yaml")); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) write(t *testing.T, file, text string) {
	t.Helper()
	if err := w.Write(web, file, text); err != nil {
		t.Fatal(err)
	}
}

func (w *world) closeAll() {
	for _, ln := range w.healthy {
		ln.Close()
	}
}

func (w *world) healAll(t *testing.T) {
	for _, pod := range w.Servers(web) {
		w.heal(t, pod)
	}
}

func echoTo(of func(*world) *fixture.Spec, size int) func(*world) (netip.AddrPort, int) {
	return func(w *world) (netip.AddrPort, int) { return of(w).VIP(false, fixture.EchoPort), size }
}

// in runs commands in a host.
func (w *world) in(t *testing.T, host string, commands ...string) {
	t.Helper()
	for _, c := range commands {
		words := strings.Fields(c)
		err := w.Lab.Host(host).Do(func() error {
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", c, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func atNode(commands ...string) change {
	return func(t *testing.T, w *world) { w.in(t, node(w), commands...) }
}

func inBalancer(ip string) change {
	return func(t *testing.T, w *world) { w.in(t, w.balancer.Name, "ip "+ip) }
}

func toBackend(verb string) change {
	return func(t *testing.T, w *world) {
		words := strings.Fields(verb)
		w.in(t, w.balancer.Name, fmt.Sprintf("ip route %s %s %s/32", words[0], words[1], w.Servers(web)[0].Addr))
	}
}

// viaNobody routes a backend by a neighbor that does not exist.
func viaNobody(verb string) change {
	return func(t *testing.T, w *world) {
		w.in(t, w.balancer.Name, fmt.Sprintf("ip route %s %s/32 via 172.16.250.250 dev eth0 onlink", verb, w.Servers(web)[0].Addr))
	}
}

func command(verb string) change {
	return func(t *testing.T, w *world) {
		if _, errs, code := w.Fairlead(t, "", verb, "--socket", cluster.Socket(w.balancer.Name)); code != 0 {
			t.Fatal(errs)
		}
	}
}

// restarted restarts the load balancer with additional arguments.
func restarted(args ...string) change {
	return func(t *testing.T, w *world) {
		if err := w.Process(w.balancer.Name).Stop(fixture.Within); err != nil {
			t.Fatal(err)
		}
		if err := w.StartBalancer(w.balancer, append([]string{"--max-frontends", "4"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
}
