package nobgp_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

// scienceNet has pods on a macvlan network in addition to their cluster's, with the load
// balancer as its gateway:
//
//	client 192.0.2.2 ── eth0 balancer eth1 172.20.0.1 ── switch ─┬─ node1 eth0 ~ web1 net1 172.20.0.11
//	                                                             └─ node2 eth0 ~ web2 net1 172.20.0.12
//
// A "~" is a macvlan device in bridge mode. The pods have the VIP of dr on their
// loopbacks. Their cluster addresses (10.244.0.0/16) are not routed.
func scienceNet(t *testing.T) *lab.Lab {
	t.Helper()
	top := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "client"}, {Name: "balancer", Forward: true}},
		Switches: []lab.SwitchSpec{{Name: "switch"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", "192.0.2.2/24", "2001:db8::2/64").Via("192.0.2.1", "default").Via("2001:db8::1", "default").ForXDP(),
				B: lab.At("balancer", "eth0", "192.0.2.1/24", "2001:db8::1/64")},
			{A: lab.At("balancer", "eth1", "172.20.0.1/24", "fd20::1/64").ForXDP(), B: lab.Port("switch").ForXDP()},
		},
	}
	for _, n := range []string{"1", "2"} {
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: "node" + n}, lab.HostSpec{
			Name: "web" + n, Loopback: []string{"10.1.1.2/32", "2001:db8:1::2/128"},
			Sysctls: map[string]string{"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2"},
		})
		top.Links = append(top.Links, lab.Link{A: lab.At("node"+n, "eth0").ForXDP(), B: lab.Port("switch").ForXDP()})
	}
	l := labtest.Build(t, top)
	for _, n := range []string{"1", "2"} {
		node, pod := l.Host("node"+n), l.Host("web"+n)
		run(t, node, "ip", "link", "add", "link", "eth0", "name", "net1", "type", "macvlan", "mode", "bridge")
		run(t, node, "ip", "link", "set", "net1", "netns", pod.Namespace().Path())
		run(t, pod, "ip", "link", "set", "net1", "up")
		run(t, pod, "ip", "address", "add", "172.20.0.1"+n+"/24", "dev", "net1")
		run(t, pod, "ip", "address", "add", "fd20::1"+n+"/64", "dev", "net1", "nodad")
		run(t, pod, "ip", "route", "add", "default", "via", "172.20.0.1")
		run(t, pod, "ip", "route", "add", "default", "via", "fd20::1")
		ln, err := pod.Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		server := load.Serve(pod.Name(), ln)
		t.Cleanup(func() {
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
	return l
}

func run(t *testing.T, h *lab.Host, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := h.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if <-p.Done(); !cmd.ProcessState.Success() {
		t.Fatalf("%s: %s: %s", h.Name(), argv, said.String())
	}
}

// onScience is a Service on that network, and its pods' addresses.
func onScience(name, vips, method string, port int) string {
	if method != "" {
		method = ", fairlead.io/forwarding-mode: " + method
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %[1]s
  annotations: {fairlead.io/addresses: %[2]q, fairlead.io/network: science%[3]s}
spec: {type: LoadBalancer, ports: [{port: %[4]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 80}]
endpoints:
  - {addresses: [10.244.1.2], nodeName: node1, targetRef: {kind: Pod, name: web1}}
  - {addresses: [10.244.2.2], nodeName: node2, targetRef: {kind: Pod, name: web2}}
---
`, name, vips, method, port)
}

// TestSecondaryNetwork balances real connections to pods that are reached only through
// their macvlan devices, in every forwarding mode that needs no DSR agent there.
func TestSecondaryNetwork(t *testing.T) {
	testkit.WatchSources(t)
	l, w, dir := scienceNet(t), &fixture.World{}, t.TempDir()
	services := filepath.Join(dir, "services")
	if err := os.Mkdir(services, 0o755); err != nil {
		t.Fatal(err)
	}
	text := onScience("fullnat", "10.1.1.1,2001:db8:1::1", "", 8080) + onScience("dr", "10.1.1.2,2001:db8:1::2", "dr", 80) +
		onScience("nat", "10.1.1.3,2001:db8:1::3", "nat", 8080) + onScience("tunnel", "10.1.1.4", "tunnel", 80)
	for _, n := range []string{"1", "2"} {
		text += fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: web%[1]s
  annotations:
    k8s.v1.cni.cncf.io/network-status: '[{"name": "cbr0", "ips": ["10.244.%[1]s.2"], "default": true},
      {"name": "default/science", "interface": "net1", "ips": ["172.20.0.1%[1]s", "fd20::1%[1]s"]}]'
---
`, n)
	}
	if err := os.WriteFile(filepath.Join(services, "web.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startImported(t, l, "eth0,eth1", services, filepath.Join(dir, "agent.log"))
	w.Eventually(t, "balancer", func(s status.Status) error {
		if len(s.Services) != 3 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, "tunnel needs the DSR agent") {
			return fmt.Errorf("%d Services, problems %v", len(s.Services), s.Problems)
		}
		return nil
	})
	for _, vip := range []string{
		"10.1.1.1:8080", "[2001:db8:1::1]:8080", "10.1.1.2:80", "[2001:db8:1::2]:80", "10.1.1.3:8080", "[2001:db8:1::3]:8080",
	} {
		t.Run(vip, func(t *testing.T) { fixture.BothAnswer(t, l, netip.MustParseAddrPort(vip)) })
	}
}
