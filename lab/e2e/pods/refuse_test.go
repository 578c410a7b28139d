package pods_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/topology"
)

// unaffected starts the traffic that rejected input must not affect.
func (p *pods) unaffected(t *testing.T) []fixture.Traffic {
	return []fixture.Traffic{p.Load(t, "tunnel", p.tunnel.HTTP(), 10, 50), p.Load(t, "dsr-nat", p.direct.HTTP(), 10, 50)}
}

// refusedInput writes one invalid version after the other of a Service in use; the
// previous version stays in force.
func (p *pods) refusedInput(t *testing.T) {
	traffic := p.unaffected(t)
	good := p.tunnel.Manifest(p.World)
	file := p.tunnel.Name + ".yaml"
	for _, c := range []struct {
		name, old, new string
		words          []string
	}{
		{"unknown field", "  type: LoadBalancer", "  typ: LoadBalancer", []string{file + ":", "spec.typ", "unknown field", "type"}},
		{"wrong port", "port: 8080}", "port: 80800}", []string{file + ":", "spec.ports[0].port", "80800"}},
		{"unknown forwarding mode", "  annotations:\n", "  annotations:\n    fairlead.io/forwarding-mode: teleport\n",
			[]string{file + ":", "fairlead.io/forwarding-mode", "teleport", "tunnel"}},
		{"unknown scheduler", "  annotations:\n", "  annotations:\n    fairlead.io/scheduler: dice\n",
			[]string{file + ":", "fairlead.io/scheduler", "dice", "maglev"}},
		{"ring size not prime", "  annotations:\n", "  annotations:\n    fairlead.io/maglev-table-size: \"16380\"\n",
			[]string{file + ":", "fairlead.io/maglev-table-size", "16380", "prime"}},
		{"unknown annotation", "  annotations:\n", "  annotations:\n    fairlead.io/forwardng-mode: tunnel\n",
			[]string{file + ":", "fairlead.io/forwardng-mode", "fairlead.io/forwarding-mode"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := strings.Replace(good, c.old, c.new, 1)
			if wrong == good {
				t.Fatalf("the manifest has no %q:\n%s", c.old, good)
			}
			fixture.During(t, traffic, c.name, func() {
				if err := p.Write(web, file, wrong); err != nil {
					t.Fatal(err)
				}
				p.Problem(t, "web-lb2", c.words...)
				p.Problem(t, "node1", c.words...)
				if err := p.Write(web, file, good); err != nil {
					t.Fatal(err)
				}
				p.Problem(t, "web-lb2")
				p.Problem(t, "node1")
			})
		})
	}
}

// refusedFrontends writes Services that are well-formed but cannot be served, next to
// others that are served.
func (p *pods) refusedFrontends(t *testing.T) {
	lonely := fixture.Spec{Name: "lonely", Of: web, Host: 21}
	wrongFamily := fixture.Spec{Name: "family", Of: web, Host: 22, Annotations: []string{"forwarding-mode: dsr-nat"}}
	service, slices, _ := strings.Cut(wrongFamily.Manifest(p.World), "---\n")
	_, sixes, _ := strings.Cut(slices, "---\n")
	onlyFour := strings.Replace(service, fmt.Sprintf("%s,%s", wrongFamily.VIP(false, 0).Addr(), wrongFamily.VIP(true, 0).Addr()),
		wrongFamily.VIP(false, 0).Addr().String(), 1)
	onlyFour = strings.Replace(onlyFour, p.Services[web].Prefix.String()+","+p.Services[web].Prefix6.String(), p.Services[web].Prefix.String(), 1)
	double := fixture.Spec{Name: "double", Of: web, Host: p.tunnel.Host}
	younger := strings.Replace(double.Manifest(p.World), "2026-01-01", "2026-06-01", 1)
	loneService, _, _ := strings.Cut(lonely.Manifest(p.World), "---\n")

	traffic := p.unaffected(t)
	for _, c := range []struct {
		of      fixture.Spec
		text    string
		state   plan.State
		reason  string
		problem []string
	}{
		{lonely, loneService, plan.NoEndpoints, "EndpointSlice", nil},
		{wrongFamily, onlyFour + "---\n" + sixes, plan.NoEndpoints, "EndpointSlice", []string{"family-ipv6", "addressType", "IPv6"}},
		{double, younger, plan.Conflict, "tunnel already has", nil},
	} {
		t.Run(c.of.Name, func(t *testing.T) {
			file := c.of.Name + ".yaml"
			fixture.During(t, traffic, c.of.Name, func() {
				if err := p.Write(web, file, c.text); err != nil {
					t.Fatal(err)
				}
				if c.problem != nil {
					p.Problem(t, "web-lb2", c.problem...)
				}
				p.Eventually(t, "web-lb2", func(s status.Status) error {
					one, err := s.Only(c.of.Name)
					if err != nil {
						return err
					}
					for _, f := range one.Services[0].Frontends {
						if f.State != c.state || !strings.Contains(f.Reason, c.reason) {
							return fmt.Errorf("%s is %s: %s", f.Key(), f.State, f.Reason)
						}
					}
					return nil
				})
				p.remove(t, file)
				p.Problem(t, "web-lb2")
			})
		})
	}
}

// programmedStays breaks the manifest of a Service, and writes another, older one that
// claims its address. Load balancers and nodes keep serving as before, also after their
// agents have been restarted or killed.
func (p *pods) programmedStays(t *testing.T) {
	traffic := p.unaffected(t)
	file, good := p.tunnel.Name+".yaml", p.tunnel.Manifest(p.World)
	newcomer := fixture.Spec{Name: "aaa", Of: web, Host: p.tunnel.Host}
	older := strings.Replace(newcomer.Manifest(p.World), "2026-01-01", "2020-01-01", 1)
	put := func(file, text string) {
		t.Helper()
		if err := p.Write(web, file, text); err != nil {
			t.Fatal(err)
		}
	}
	stays := func(agent string) {
		t.Helper()
		p.Eventually(t, agent, func(s status.Status) error {
			one, err := s.Only(p.tunnel.Name, newcomer.Name)
			if err != nil {
				return err
			}
			for i, want := range []plan.State{plan.Conflict, plan.Active} {
				for _, f := range one.Services[i].Frontends {
					if f.State != want {
						return fmt.Errorf("%s of %s is %s: %s", f.Key(), one.Services[i].ID, f.State, f.Reason)
					}
				}
			}
			if tunnel := one.Services[1]; tunnel.StaleSince.IsZero() || len(s.Stale) != 1 || s.Stale[0].Object != "Service "+tunnel.ID || s.Stale[0].Where != file+":1" {
				return fmt.Errorf("stale: %+v", s.Stale)
			}
			return nil
		})
		p.Problem(t, agent, file+":", "spec.ports[0].port", "80800")
		p.Problem(t, agent, "aaa.yaml:1", "Service default/aaa", "already has", "("+file+":1)", "was programmed first")
	}
	agents := []string{"node1"}
	fixture.During(t, traffic, "a broken manifest and a newcomer", func() {
		put(file, strings.Replace(good, "port: 8080}", "port: 80800}", 1))
		put("aaa.yaml", older)
		for _, pod := range p.Balancers(web) {
			agents = append(agents, pod.Name)
		}
		for _, a := range agents {
			stays(a)
		}
	})
	for _, pod := range p.Balancers(web)[:2] {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			fixture.During(t, traffic, fmt.Sprintf("%v to %s and a new start", sig, pod.Name), func() {
				p.again(t, pod, sig)
				stays(pod.Name)
			})
		}
	}
	fixture.During(t, traffic, "the end of both", func() {
		p.remove(t, "aaa.yaml")
		put(file, good)
		for _, a := range agents {
			p.Problem(t, a)
		}
	})
}

// remove removes a file from the web service's folders.
func (p *pods) remove(t *testing.T, file string) {
	t.Helper()
	for _, folder := range []string{p.Services[web].Name, "all"} {
		if err := os.Remove(filepath.Join(cluster.Manifests(folder), file)); err != nil {
			t.Fatal(err)
		}
	}
}

// folderAndFiles removes the load balancers' folder for a while, and writes a file in two
// halves.
func (p *pods) folderAndFiles(t *testing.T) {
	traffic := p.unaffected(t)
	folder := cluster.Manifests(p.Services[web].Name)
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	fixture.During(t, traffic, "the folder gone", func() {
		move(folder, folder+".away")
		p.Problem(t, "web-lb2", folder, "is gone")
		move(folder+".away", folder)
		p.Problem(t, "web-lb2")
	})
	file := filepath.Join(folder, p.tunnel.Name+".yaml")
	whole := p.tunnel.Manifest(p.World)
	fixture.During(t, traffic, "a file half written", func() {
		// In the middle of a word of the Service; its slices are missing.
		half := whole[:strings.Index(whole, "LoadBalancer")+4]
		if err := os.WriteFile(file, []byte(half), 0o644); err != nil {
			t.Fatal(err)
		}
		p.Problem(t, "web-lb2", p.tunnel.Name+".yaml")
		if err := os.WriteFile(file, []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
		p.Problem(t, "web-lb2")
	})
}

// peer waits until an agent's only peer has an error with all of these words, or, without
// words, is established.
func (p *pods) peer(t *testing.T, agent string, words ...string) {
	t.Helper()
	p.Eventually(t, agent, func(s status.Status) error {
		if len(s.Peers) != 1 {
			return fmt.Errorf("peers %v", s.Peers)
		}
		peer := s.Peers[0]
		if established := peer.State == "established"; established != (len(words) == 0) || !fixture.HasAll(peer.LastError, words) {
			return fmt.Errorf("peer %s is %s, last error %q; want %q", peer.Address, peer.State, peer.LastError, words)
		}
		return nil
	})
}

// refusedPeers starts another load balancer with one invalid BGP setting after the other.
func (p *pods) refusedPeers(t *testing.T) {
	traffic := p.unaffected(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pod, err := p.AddBalancer(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	reflector := topology.ReflectorAddr.String()
	start := func(args ...string) error {
		return p.Start(pod.Name, pod.Name, append([]string{"agent", "--node", pod.Name, "--manifest-dir", cluster.Manifests(p.Services[web].Name),
			"--next-hop", pod.Node.Addr.String(), "--bpffs", cluster.BPFFS(pod.Name), "--socket", cluster.Socket(pod.Name)}, args...)...)
	}
	for _, c := range []struct {
		name  string
		args  []string
		words []string
	}{
		{"wrong AS of the peer", []string{"--peer", reflector + "@65099"}, []string{reflector, "65099", "65021"}},
		{"wrong AS of our own", []string{"--local-asn", "65098", "--peer", reflector + "@65021"}, []string{reflector, "65098", "65021"}},
		{"wrong password", []string{"--peer", reflector, "--password-file", password}, []string{reflector, "password"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixture.During(t, traffic, c.name, func() {
				if err := start(c.args...); err != nil {
					t.Fatal(err)
				}
				p.peer(t, pod.Name, c.words...)
				if err := p.Process(pod.Name).Stop(fixture.Within); err != nil {
					t.Errorf("it exits with %v", err)
				}
			})
		})
	}
	fixture.During(t, traffic, "the right settings", func() {
		if err := p.StartBalancer(pod); err != nil {
			t.Fatal(err)
		}
		p.peer(t, pod.Name)
		p.removeBalancer(t, pod)
	})
}

// secondAgents starts agents that conflict with a running one.
func (p *pods) secondAgents(t *testing.T) {
	traffic := p.unaffected(t)
	first := p.Balancers(web)[0]
	before, err := p.Status(t, first.Name)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "socket")
	t.Cleanup(func() { // the folders that they created before they were rejected
		if err := os.RemoveAll("/sys/fs/bpf/second"); err != nil {
			t.Error(err)
		}
	})
	balancer := []string{"--next-hop", first.Node.Addr.String(), "--peer", topology.ReflectorAddr.String()}
	for _, c := range []struct {
		name          string
		socket, bpffs string
		args, words   []string
		code          int
	}{
		{"interface", own, "/sys/fs/bpf/second", balancer, []string{"eth0", "another XDP program"}, 1},
		{"socket", cluster.Socket(first.Name), "/sys/fs/bpf/second", []string{"--role", "dsr"},
			[]string{cluster.Socket(first.Name), "another agent is listening there"}, 1},
		{"pins", own, cluster.BPFFS(first.Name), balancer, []string{"another agent", cluster.BPFFS(first.Name)}, 1},
		{"everything", cluster.Socket(first.Name), cluster.BPFFS(first.Name), balancer, []string{"another agent"}, 1},
		{"wrong flags", own, "/sys/fs/bpf/second", []string{"--interface", "eth7", "--local-asn", "0"}, []string{"--local-asn", "0 is not an AS number"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixture.During(t, traffic, "a second agent with the same "+c.name, func() {
				_, stderr, code := p.Fairlead(t, first.Name, append([]string{"agent", "--node", "second",
					"--manifest-dir", cluster.Manifests("web"), "--socket", c.socket, "--bpffs", c.bpffs}, c.args...)...)
				if last := fixture.LastLine(stderr); code != c.code || !fixture.HasAll(last, c.words) {
					t.Errorf("exit code %d, last line %q; want %d, %q; output:\n%s", code, last, c.code, c.words, stderr)
				}
			})
			after, err := p.Status(t, first.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !after.Started.Equal(before.Started) || len(after.Peers) != 1 || !after.Peers[0].Since.Equal(before.Peers[0].Since) {
				t.Errorf("the first agent, or its BGP session, is not the same: peers %v before, %v after", before.Peers, after.Peers)
			}
		})
	}
}
