package vdn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	plan "github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
)

// The node of all worlds has the uplink eth0 and these pods, on macvlan or veth. Its
// slices differ, except for the slices of the pods.
func somePods() []*pod {
	return []*pod{
		{name: "a", macvlan: true, slice: 1, mac: [6]byte{2, 0, 0, 0, 1, 1}, addrs: []netip.Addr{ip("10.1.0.2"), ip("fd01::2")}},
		{name: "b", slice: 2, mac: [6]byte{2, 0, 0, 0, 2, 1}, addrs: []netip.Addr{ip("10.2.0.2"), ip("10.2.0.3"), ip("fd02::2"), ip("fd02::3")}},
		{name: "c", macvlan: true, slice: 1, mac: [6]byte{2, 0, 0, 0, 1, 2}, addrs: []netip.Addr{ip("10.1.0.3")}},
	}
}

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

const pins = "/sys/fs/bpf/fuzz-vdn"

// node is the network namespaces and the agent.
type node struct {
	net        *packetfuzz.Net
	namespaces []*netns.NS
	agent      *kernel.Kernel
}

func openNode(pods []*pod) (n *node, err error) {
	n = &node{}
	if n.net, err = packetfuzz.NewNet("fuzz-vdn"); err != nil {
		return n, err
	}
	eth0 := n.net.Wire("eth0", [6]byte{2, 0, 0, 0, 0, 5}, 1500, "10.0.0.5/16", "fd00::5/64")
	if err := n.net.Err(); err != nil {
		return n, err
	}
	for _, p := range pods {
		ns, err := netns.Create("fuzz-vdn-" + p.name)
		if err != nil {
			return n, err
		}
		n.namespaces = append(n.namespaces, ns)
		if err := n.device(p, ns, eth0); err != nil {
			return n, err
		}
	}
	n.agent, err = kernel.Open(kernel.Config{PinDir: pins, Gateway: true, Uplinks: []plan.Uplink{{Device: "eth0", Rate: 10_000_000_000}}})
	return n, err
}

// device creates the device of a pod.
func (n *node) device(p *pod, ns *netns.NS, eth0 uint32) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Namespace = "net1", p.mac[:], netlink.NsFd(ns.FD())
	if p.macvlan {
		attrs.ParentIndex = int(eth0)
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	}
	end := netlink.NewLinkAttrs()
	end.Name = p.port()
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: end, PeerName: "net1", PeerHardwareAddr: p.mac[:], PeerNamespace: netlink.NsFd(ns.FD())})
}

// port is the node's end of a pod's veth pair.
func (p *pod) port() string { return "port-" + p.name }

func (n *node) close() (errs []error) {
	if n.agent != nil {
		errs = append(errs, n.agent.Remove())
	}
	for _, ns := range n.namespaces {
		errs = append(errs, ns.Close())
	}
	if n.net != nil {
		errs = append(errs, n.net.Close())
	}
	return errs
}

// private are the instrumented programs' own maps. The others share the first one's.
var (
	private = []string{"pod_buckets", "pod_counts"}
	common  = []string{"vdn_refused", "vdn_namespaces"}
)

// programsOf returns the maps of the programs at a device, in a namespace.
func programsOf(device string) (live map[string]*ebpf.Map, err error) {
	nic, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: nic.Index, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return nil, err
	}
	if len(q.Programs) == 0 {
		return nil, fmt.Errorf("no program at %s", device)
	}
	return packetfuzz.LiveMaps(q.Programs[0].ID)
}

// load loads the programs at the uplink, and once for each pod those at its device. All
// share the coverage.
func (t *Target) load(object string) error {
	shared, err := programsOf("eth0")
	if err != nil {
		return err
	}
	if t.gateway, err = loadOne(object, shared, append(slices.Clone(private), common...)); err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	packetfuzz.ShareNotes(shared, t.gateway)
	for _, name := range common {
		shared[name] = t.gateway.Maps[name]
	}
	for i, p := range t.pods {
		var live map[string]*ebpf.Map
		if err := t.node.namespaces[i].Do(func() (err error) {
			live, err = programsOf("net1")
			return err
		}); err != nil {
			return fmt.Errorf("pod %s: %w", p.name, err)
		}
		t.live = append(t.live, live)
		for name, m := range shared {
			if live[name] == nil || slices.Contains(common, name) {
				live[name] = m
			}
		}
		o, err := loadOne(object, live, private)
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.name, err)
		}
		t.objects = append(t.objects, o)
	}
	return nil
}

func loadOne(object string, live map[string]*ebpf.Map, private []string) (*packetfuzz.Object, error) {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, err
	}
	return packetfuzz.LoadWithTCIndex(spec, live, private, func(s *ebpf.CollectionSpec) error {
		s.Maps["vdn_refused"].Type = ebpf.Hash
		s.Maps["vdn_refused"].MaxEntries = 64
		s.Maps["vdn_namespaces"].MaxEntries = 8
		s.Maps["pod_buckets"].Flags |= 1 << 10 // BPF_F_MMAPABLE
		return nil
	})
}

// Enter implements packetfuzz.Target.
func (t *Target) Enter(world uint64) error {
	rng := rand.New(rand.NewPCG(world, 5))
	t.world = slicesOf(rng)
	t.model.slices = t.world
	return t.configure()
}

// configure makes the agent enforce the slices, for all pods.
func (t *Target) configure() error {
	p := plan.Plan{Revision: t.revision, Slices: t.model.slices}
	t.revision++
	for i, pod := range t.pods {
		a := plan.Attachment{
			ID: pod.name + ".net1", Network: fmt.Sprint("slice", pod.slice), Container: pod.name, Interface: "net1",
			Device: pod.port(), NetNS: t.node.namespaces[i].Path(), Phase: plan.Up, MAC: net.HardwareAddr(pod.mac[:]).String(),
		}
		for _, addr := range pod.addrs {
			a.Addresses = append(a.Addresses, netip.PrefixFrom(addr, addr.BitLen()-8))
		}
		p.Local = append(p.Local, a)
	}
	if err := t.node.agent.Apply(context.Background(), p); err != nil {
		return err
	}
	return t.takeRates()
}

// slicesOf returns random slices. Their prefixes sometimes contain each other.
func slicesOf(rng *rand.Rand) (all []plan.Slice) {
	for id := uint16(1); id <= 4; id++ {
		s := plan.Slice{ID: id, Name: fmt.Sprint("slice", id)}
		for _, text := range []string{
			fmt.Sprintf("10.%d.0.0/24", id), fmt.Sprintf("10.%d.1.0/31", id), fmt.Sprintf("10.1.0.%d/32", 240+id), fmt.Sprintf("fd%02d::/64", id),
			fmt.Sprintf("fd%02d:0:0:1::/80", id), fmt.Sprintf("fd01::f%d/128", id), fmt.Sprintf("172.16.0.0/%d", 15+id),
		} {
			if rng.IntN(3) > 0 {
				s.Prefixes = append(s.Prefixes, netip.MustParsePrefix(text).Masked())
			}
		}
		for other := uint16(1); other <= 5; other++ {
			if other != id && rng.IntN(3) > 0 {
				s.PeerNetworks = append(s.PeerNetworks, other)
			}
		}
		for _, text := range []string{"0.0.0.0/0", "::/0", "198.51.100.0/24", "2001:db8::/32", "192.0.2.1/32", "2001:db8:1::1/128", "10.0.0.0/8", "fd00::/8", "::/1", "::/80"} {
			if rng.IntN(8) == 0 {
				s.AllowedCIDRs = append(s.AllowedCIDRs, netip.MustParsePrefix(text))
			}
		}
		s.MaxRatePerHost = []plan.Rate{0, 0, 1_000, 64_000, 1_000_000, 10_000_000_000}[rng.IntN(6)]
		if rng.IntN(2) == 0 {
			s.GuaranteedRate, s.MaxRate = 1_000_000, 2_000_000
		}
		all = append(all, s)
	}
	return all
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }
