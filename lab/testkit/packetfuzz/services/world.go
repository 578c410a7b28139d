package services

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	plane "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/dataplane/proxy/packet"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The node of all worlds:
//
//	eth0  the network: 10.0.0.11/24, 2001:db8::11/64; the default gateway is .1, and
//	      .12 another node
//	pod0  a pod: 172.16.1.1/24, 2001:db8:16:1::1/64; .2 and .3, whose MAC address is
//	      not known
//	br0   a bridge for pods: 172.16.3.1/24, 2001:db8:16:3::1/64, with the ports pb0
//	      and pb1
//
// Pods of the other node are in 172.16.2.0/24, 2001:db8:16:2::/64; 172.18.0.0/16 and
// fd18::/64 are behind a route with a small MTU, 172.31.0.0/16 and fd31::/64 are
// unreachable.
var macs = map[string][6]byte{
	"eth0": {2, 0, 0, 0, 0, 11}, "pod0": {2, 0, 0, 0, 1, 1}, "br0": {2, 0, 0, 0, 3, 1}, "pb0": {2, 0, 0, 0, 3, 8}, "pb1": {2, 0, 0, 0, 3, 9},
}

func addr(text string) wire.Addr { return netip.MustParseAddr(text).As16() }

// addresses by family.
var (
	gateways     = [2]string{"10.0.0.1", "2001:db8::1"}
	nodes        = [2][]string{{"10.0.0.11", "172.16.1.1"}, {"2001:db8::11", "2001:db8:16:1::1"}}
	services     = [2][]string{{"10.96.0.1", "10.96.0.2", "203.0.113.1"}, {"2001:db8:96::1", "2001:db8:96::2", "2001:db8:113::1"}}
	locals       = [2][]string{{"172.16.1.2", "172.16.1.3", "172.16.3.2", "172.16.3.3", "10.0.0.11"}, {"2001:db8:16:1::2", "2001:db8:16:1::3", "2001:db8:16:3::2", "2001:db8:16:3::3", "2001:db8::11"}}
	remotes      = [2][]string{{"172.16.2.2", "172.16.2.3", "172.18.0.2", "172.31.0.2", "10.0.0.12"}, {"2001:db8:16:2::2", "2001:db8:16:2::3", "fd18::2", "fd31::2", "2001:db8::12"}}
	clients      = [2][]string{{"192.168.0.1", "192.168.0.2", "192.168.0.3"}, {"2001:db8:c::1", "2001:db8:c::2", "2001:db8:c::3"}}
	unknownAddrs = [2][]string{{"203.0.113.9", "172.16.1.77", "127.0.0.1", "224.0.0.1", "0.0.0.0"}, {"2001:db8:99::9", "fe80::1", "::1", "ff02::1", "::"}}
)

func newNet() (*packetfuzz.Net, error) {
	n, err := packetfuzz.NewNet("fuzz-services")
	if err != nil {
		return nil, err
	}
	eth0 := n.Wire("eth0", macs["eth0"], 1500, "10.0.0.11/24", "2001:db8::11/64")
	pod0 := n.Wire("pod0", macs["pod0"], 1500, "172.16.1.1/24", "2001:db8:16:1::1/64")
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = "br0", net.HardwareAddr{2, 0, 0, 0, 3, 1}
	n.Add(&netlink.Bridge{LinkAttrs: attrs})
	for _, port := range []string{"pb0", "pb1"} {
		n.Wire(port, macs[port], 1400)
		n.Enslave(port, "br0")
	}
	br0 := n.Up("br0", "172.16.3.1/24", "2001:db8:16:3::1/64")
	for i, a := range []string{"10.0.0.1", "10.0.0.12", "2001:db8::1", "2001:db8::12"} {
		n.Neighbor(eth0, a, [6]byte{2, 0, 0, 0, 0, byte(1 + i)})
	}
	for f := range 2 {
		n.Neighbor(pod0, locals[f][0], [6]byte{2, 0, 0, 0, 1, 2})
		n.Neighbor(br0, locals[f][2], [6]byte{2, 0, 0, 0, 3, 2})
		gateway := netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP(gateways[f])}
		n.Route("", gateway)
		n.Route([]string{"172.16.2.0/24", "2001:db8:16:2::/64"}[f], netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP([]string{"10.0.0.12", "2001:db8::12"}[f])})
		n.Route([]string{"172.31.0.0/16", "fd31::/64"}[f], netlink.Route{Type: unix.RTN_UNREACHABLE})
		gateway.MTU = 1300
		n.Route([]string{"172.18.0.0/16", "fd18::/64"}[f], gateway)
	}
	return n, n.Err()
}

// agent is the service proxy of a node.
type agent struct {
	plane  *plane.DataPlane
	half   *packet.Half
	root   string // of cgroups
	cgroup *os.File
}

func openAgent() (a *agent, err error) {
	a = &agent{}
	// If bridges do not pass packets to the firewall, the agent records their ports.
	if err := netns.WriteSysctl("net.bridge.bridge-nf-call-iptables", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return a, err
	}
	if a.root, err = os.MkdirTemp("", "fuzz-services-"); err != nil {
		return a, err
	}
	if a.cgroup, err = testkit.OpenCgroup(a.root); err != nil {
		return a, err
	}
	const dir = "/sys/fs/bpf/fuzz-services"
	a.plane, err = plane.Open(plane.Config{PinDir: dir, Cgroup: a.cgroup.Name(), MaxFrontends: 256, MaxTargets: 1024, MaxSourceRanges: 512, Namespaces: filepath.Join(a.root, "none")})
	if err != nil {
		return a, err
	}
	var all []netip.Addr
	for _, of := range nodes {
		for _, n := range of {
			all = append(all, netip.MustParseAddr(n))
		}
	}
	if err := a.plane.SetNodeAddresses(all); err != nil {
		return a, err
	}
	a.half, err = packet.Open(packet.Config{Maps: plane.Folder(dir), PinDir: dir + "-packet", MaxFlows: 1 << 12, Uplinks: []string{"eth0"}})
	return a, err
}

func (a *agent) close() (errs []error) {
	if a.half != nil {
		errs = append(errs, a.half.Detach())
	}
	if a.plane != nil {
		errs = append(errs, a.plane.Detach())
	}
	if a.cgroup != nil {
		errs = append(errs, testkit.CloseCgroup(a.cgroup))
	}
	if a.root != "" {
		errs = append(errs, os.Remove(a.root))
	}
	return errs
}

// private are the instrumented programs' own maps.
var private = []string{"packet_flows", "packet_fragments", "packet_counters", "packet_scratch", "affinities", "connections"}

// maxEntries is small, so that emptying the maps after a case costs little; no case has
// so many.
const maxEntries = 256

func load(object string) (*packetfuzz.Object, map[string]*ebpf.Map, error) {
	nic, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil, nil, err
	}
	live := map[string]*ebpf.Map{}
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		q, err := link.QueryPrograms(link.QueryOptions{Target: nic.Index, Attach: at})
		if err != nil {
			return nil, nil, err
		}
		for _, p := range q.Programs {
			maps, err := packetfuzz.LiveMaps(p.ID)
			if err != nil {
				return nil, nil, err
			}
			for name, m := range maps {
				live[name] = m
			}
		}
	}
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, nil, err
	}
	o, err := packetfuzz.Load(spec, live, private, func(s *ebpf.CollectionSpec) error {
		for _, name := range []string{"packet_flows", "packet_fragments", "affinities"} {
			s.Maps[name].MaxEntries = maxEntries
		}
		s.Maps["connections"].MaxEntries = live["connections"].MaxEntries()
		return nil
	})
	return o, live, err
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// Enter implements packetfuzz.Target.
func (t *Target) Enter(world uint64) error {
	rng := rand.New(rand.NewPCG(world, 11))
	if err := packetfuzz.SetForwarding(rng); err != nil {
		return err
	}
	t.world = t.world[:0]
	for _, v6 := range []bool{false, true} {
		for i := range 6 + rng.IntN(6) {
			t.world = append(t.world, frontendOf(rng, v6, i))
		}
	}
	if err := t.configure(t.world); err != nil {
		return err
	}
	t.changed = false
	t.model.routes.Forget()
	t.generator.enter(t)
	return nil
}

// configure gives the agent its configurations with exactly these frontends.
func (t *Target) configure(all []proxy.Frontend) error {
	return t.config.Hold(t.agent.plane, all, t.reader.maps["services"], t.object.Spec.Types)
}

// frontendOf returns a random frontend. Few addresses have many ports.
func frontendOf(rng *rand.Rand, v6 bool, i int) (f proxy.Frontend) {
	f.Kind = pick(rng, []proxy.Kind{proxy.ClusterIP, proxy.ClusterIP, proxy.ExternalIP, proxy.LoadBalancerIP, proxy.NodePort})
	f.Key = proxy.Key{Addr: netip.MustParseAddr(pick(rng, services[family(v6)])), Port: uint16(80 + i), Protocol: pick(rng, []service.Protocol{service.TCP, service.TCP, service.UDP, service.SCTP})}
	switch {
	case f.Kind == proxy.NodePort:
		f.Addr, f.Port = netip.AddrFrom4([4]byte{}), uint16(30000+i)
		if v6 {
			f.Addr = netip.IPv6Unspecified()
		}
	case f.Kind == proxy.ExternalIP && rng.IntN(3) == 0:
		f.Addr = netip.MustParseAddr(nodes[family(v6)][0])
	}
	f.Inside, f.Outside = choice(rng, v6, f.Port), choice(rng, v6, f.Port)
	if rng.IntN(3) > 0 {
		f.Outside = f.Inside
	}
	if rng.IntN(4) == 0 {
		f.Affinity = time.Duration(pick(rng, []int{1, 5, 60, 10800})) * time.Second
	}
	if rng.IntN(5) == 0 {
		ranges := [2][]string{{"192.168.0.0/31", "172.16.0.0/16", "10.0.0.11/32", "0.0.0.0/0"}, {"2001:db8:c::/127", "2001:db8:16::/48", "2001:db8::11/128", "::/0"}}[family(v6)]
		for range rng.IntN(3) {
			f.Allow = append(f.Allow, netip.MustParsePrefix(pick(rng, ranges)))
		}
		f.Closed = len(f.Allow) == 0
	}
	return f
}

// choice returns random endpoints, sorted.
func choice(rng *rand.Rand, v6 bool, port uint16) (c proxy.Choice) {
	c.Empty = pick(rng, []proxy.Empty{proxy.Refused, proxy.Dropped})
	if rng.IntN(10) == 0 {
		return c
	}
	var keeps []proxy.Target
	for _, all := range [][]string{locals[family(v6)], remotes[family(v6)]} {
		for i, a := range all {
			at := port
			if (i+rng.IntN(2))%2 == 0 {
				at = 8080
			}
			t := proxy.Target{Addr: netip.AddrPortFrom(netip.MustParseAddr(a), at), Local: &all[0] == &locals[family(v6)][0]}
			switch rng.IntN(6) {
			case 0, 1:
				c.Targets = append(c.Targets, t)
			case 2:
				keeps = append(keeps, t)
			}
		}
	}
	proxied.Sort(c.Targets)
	proxied.Sort(keeps)
	c.Keeps = keeps
	return c
}
