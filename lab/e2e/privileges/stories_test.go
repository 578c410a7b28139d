package privileges

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	vdnmodel "github.com/fairlead/fairlead/vdn"
)

// withRouter starts a router to which load balancers connect.
func (p *place) withRouter(caps privilege.Set) *process {
	return p.start("router", caps, "router", "--router-id", "10.0.0.254", "--listen-range", "10.0.0.0/24", "--socket", p.socket("router"), "--bfd=false")
}

// routed checks that the router sends packets for the VIP to lb.
func (p *place) routed() error {
	routes, err := p.lab.Host("router").Routes(netip.PrefixFrom(vip.Addr(), 32))
	if err == nil && (len(routes) != 1 || !strings.HasSuffix(routes[0], ": 10.0.0.1")) {
		err = fmt.Errorf("routes to the VIP are %q", routes)
	}
	return err
}

// balancer checks that its session is up, and that the VIP answers.
func balancer(p *place, caps privilege.Set) error { return balancers(p, caps, 1) }

// takeover checks the same after a restart.
func takeover(p *place, caps privilege.Set) error { return balancers(p, caps, 2) }

func balancers(p *place, caps privilege.Set, n int) error {
	p.withRouter(privilege.All)
	for range n {
		lb := p.agent("lb", caps, "--manifest-dir", p.services(vip.Addr().String(), "fullnat"), "--peer", "10.0.0.254")
		if err := lb.until(func() error { return errors.Join(p.established("lb"), p.answered(vip)) }); err != nil {
			return err
		}
		must(p.t, lb.Signal(syscall.SIGKILL))
		<-lb.Done()
	}
	return nil
}

// layer2 checks that the client, which has no route to the VIP, finds it by ARP.
func layer2(p *place, caps privilege.Set) error {
	at := netip.MustParseAddrPort("10.0.0.200:80")
	lb := p.agent("lb", caps, "--manifest-dir", p.services(at.Addr().String(), "fullnat"), "--l2-interfaces", "eth0", "--l2-members", "10.0.0.1")
	return lb.until(func() error { return p.answered(at) })
}

// ownBPFFS checks that the agent mounts the file system for its pins.
func ownBPFFS(p *place, caps privilege.Set) error {
	at := filepath.Join(p.dir, "bpf")
	p.t.Cleanup(func() { _ = unix.Unmount(filepath.Join(at, "fairlead/balancer"), unix.MNT_DETACH) }) // where it was mounted
	lb := p.agent("lb", caps, "--manifest-dir", p.services(vip.Addr().String(), "fullnat"), "--bpffs", at)
	return lb.until(func() error { return p.answered(vip) })
}

// server checks that it decapsulates connections from the load balancer's tunnel, and
// answers as the VIP.
func server(p *place, caps privilege.Set) error {
	services := p.services(vip.Addr().String(), "tunnel")
	p.agent("lb", privilege.All, "--manifest-dir", services)
	web := p.agent("web", caps, "--manifest-dir", services, "--role", "dsr")
	return web.until(func() error { return p.answered(vip) })
}

// router checks that it connects to a load balancer's peer, and installs the routes of
// that peer.
func router(p *place, caps privilege.Set) error {
	p.start("web", privilege.All, "reflector", "--router-id", "10.0.0.21", "--client-range", "10.0.0.1/32", "--router-range", "10.0.0.254",
		"--socket", p.socket("web"), "--bfd=false")
	p.agent("lb", privilege.All, "--manifest-dir", p.services(vip.Addr().String(), "fullnat"), "--peer", "10.0.0.21")
	r := p.start("router", caps, "router", "--router-id", "10.0.0.254", "--peer", "10.0.0.21", "--socket", p.socket("router"), "--bfd=false")
	return r.until(p.routed)
}

// routerListens checks that the load balancer connects to it.
func routerListens(p *place, caps privilege.Set) error {
	r := p.withRouter(caps)
	p.agent("lb", privilege.All, "--manifest-dir", p.services(vip.Addr().String(), "fullnat"), "--peer", "10.0.0.254")
	return r.until(p.routed)
}

// reflector checks that a load balancer has a session with it.
func reflector(p *place, caps privilege.Set) error {
	r := p.start("router", caps, "reflector", "--router-id", "10.0.0.254", "--client-range", "10.0.0.0/24", "--router-range", "10.0.0.21",
		"--socket", p.socket("router"), "--bfd=false")
	p.agent("lb", privilege.All, "--manifest-dir", p.services(vip.Addr().String(), "fullnat"), "--peer", "10.0.0.254")
	return r.until(func() error { return p.established("lb") })
}

// cleanup removes what a killed agent left.
func cleanup(p *place, caps privilege.Set) error {
	lb := p.agent("lb", privilege.All, "--manifest-dir", p.services(vip.Addr().String(), "fullnat"))
	if err := lb.until(func() error { return p.answered(vip) }); err != nil {
		p.t.Fatal(err)
	}
	must(p.t, lb.Kill())
	<-lb.Done()
	must(p.t, p.answered(vip)) // the programs are still running: there is something to remove
	if err := p.start("lb", caps, "cleanup", "--bpffs", p.bpffs("lb")).succeeds(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.bpffs("lb"), "fairlead")); !os.IsNotExist(err) {
		return fmt.Errorf("pins remain: %v", err)
	}
	link, err := p.lab.Host("lb").Netlink().LinkByName("eth0")
	if must(p.t, err); link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached {
		return errors.New("a program is still attached to eth0")
	}
	return nil
}

// cleanupVDN removes what a node's daemon left at a pod.
func cleanupVDN(p *place, caps privilege.Set) error {
	n, err := p.withNode(privilege.All)
	must(p.t, err)
	must(p.t, n.Kill())
	<-n.Done()
	if err := p.start("lb", caps, "cleanup", "--bpffs", p.bpffs("lb")).succeeds(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.bpffs("lb"), "fairlead")); !os.IsNotExist(err) {
		return fmt.Errorf("pins remain: %v", err)
	}
	return nil
}

const networks = `networks:
- name: science
  devices: [eth0]
  subnets: [{cidr: 10.9.0.0/24, ranges: [{first: 10.9.0.10, last: 10.9.0.99}]}]
  guaranteedRate: 100M
`

// withVDN runs a controller in lb, with a network.
func (p *place) withVDN(caps privilege.Set) *process {
	v := p.start("lb", caps, "vdn", "controller", "--data", filepath.Join(p.dir, "vdn"))
	file := filepath.Join(p.dir, "networks.yaml")
	must(p.t, os.WriteFile(file, []byte(networks), 0o644))
	if err := v.until(func() error { return p.start("lb", 0, "vdn", "apply", "-f", file).succeeds() }); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// vdn checks that the controller accepts a network and lists it.
func vdn(p *place, caps privilege.Set) error {
	v := p.withVDN(caps)
	return v.until(func() error {
		look := p.start("lb", 0, "vdn", "get", "networks")
		if err := look.succeeds(); err != nil || !strings.Contains(look.said.String(), "science") {
			return fmt.Errorf("networks: %w: %s", err, look.said)
		}
		return nil
	})
}

// attach runs the plugin for the host pod.
func (p *place) attach(verb string, caps privilege.Set) error {
	cmd := exec.Command(filepath.Join(fixture.Ground, "fairlead-cni"))
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=pod", "CNI_IFNAME=net1", "CNI_PATH=" + fixture.Ground,
		"CNI_NETNS=" + filepath.Join(netns.Dir, "pod")}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "science", "type": "fairlead-cni", "network": "science",
		"controller": "http://127.0.0.1:7473", "node": "lb", "dataDir": %q}`, filepath.Join(p.dir, "cni")))
	return p.startCommand("lb", caps, cmd).succeeds()
}

// plugin checks that a pod gets its device, and loses it.
func plugin(p *place, caps privilege.Set) error {
	must(p.t, testkit.BuildPackage(filepath.Join(fixture.Ground, "fairlead-cni"), "github.com/fairlead/fairlead/cmd/fairlead-cni"))
	p.withVDN(privilege.All)
	if err := p.attach("ADD", caps); err != nil {
		return err
	}
	if _, err := p.lab.Host("pod").Netlink().LinkByName("net1"); err != nil {
		return err
	}
	return p.attach("DEL", caps)
}

// vdnNode checks that the node enforces the plan at the uplink and at a pod's device.
func vdnNode(p *place, caps privilege.Set) error {
	_, err := p.withNode(caps)
	return err
}

// withNode runs a node's daemon in lb until it enforces the plan for a pod.
func (p *place) withNode(caps privilege.Set) (*process, error) {
	must(p.t, testkit.BuildPackage(filepath.Join(fixture.Ground, "fairlead-cni"), "github.com/fairlead/fairlead/cmd/fairlead-cni"))
	p.withVDN(privilege.All)
	n := p.start("lb", caps, "vdn", "agent", "--name", "lb", "--uplink", "eth0=1G", "--bpffs", p.bpffs("lb"),
		"--data", filepath.Join(p.dir, "node"), "--socket", p.socket("node"))
	p.t.Cleanup(func() { os.RemoveAll(p.bpffs("lb")) })
	if err := n.until(func() error { return p.nodeHolds("lb") }); err != nil {
		return nil, err
	}
	must(p.t, p.attach("ADD", privilege.All))
	return n, n.until(func() error {
		pins, err := filepath.Glob(filepath.Join(p.bpffs("lb"), "fairlead/*/pods/*"))
		if err == nil && len(pins) == 0 {
			err = errors.New("nothing is attached at the pod's device")
		}
		return err
	})
}

// nodeHolds checks that the controller knows a node that enforces the newest plan.
func (p *place) nodeHolds(name string) error {
	look := p.start("lb", 0, "vdn", "get", "nodes", "-o", "json")
	if err := look.succeeds(); err != nil {
		return err
	}
	var nodes []vdnmodel.NodeView
	if err := json.Unmarshal([]byte(look.said.String()), &nodes); err != nil {
		return err
	}
	if len(nodes) != 1 || nodes[0].Name != name || nodes[0].Applied == 0 || nodes[0].Error != "" {
		return fmt.Errorf("nodes are %+v", nodes)
	}
	return nil
}
