package balancer

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/addresses"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/model"
)

func newNet() (*packetfuzz.Net, []model.Device, error) {
	n, err := packetfuzz.NewNet("fuzz-balancer")
	if err != nil {
		return nil, nil, err
	}
	eth0 := n.Wire("eth0", addresses.MacEth0, 1500, "172.16.0.2/24", "fd00::2/64", addresses.LocalVIPs[0]+"/32", addresses.LocalVIPs[1]+"/128")
	eth1 := n.Wire("eth1", addresses.MacEth1, 1400, "172.17.0.2/24", "fd01::2/64")
	above := netlink.NewLinkAttrs()
	above.Name, above.ParentIndex, above.HardwareAddr = "above0", int(eth0), addresses.MacAbove[:]
	n.Add(&netlink.Macvlan{LinkAttrs: above, Mode: netlink.MACVLAN_MODE_BRIDGE})
	for i := range byte(8) {
		for _, wire := range []struct {
			nic  uint32
			a, b string
		}{{eth0, "172.16.0.", "fd00::"}, {eth1, "172.17.0.", "fd01::"}} {
			mac := [6]byte{2, 0, 0, byte(wire.nic), 2, i}
			n.Neighbor(wire.nic, fmt.Sprint(wire.a, 32+i), mac)
			n.Neighbor(wire.nic, fmt.Sprintf("%s%x", wire.b, 0x20+i), mac)
		}
	}
	for _, v6 := range []bool{false, true} {
		gateway, beyond := "172.16.0.1", "172.17.0.3"
		if v6 {
			gateway, beyond = "fd00::1", "fd01::3"
		}
		n.Neighbor(eth0, gateway, addresses.MacGateway)
		n.Neighbor(eth1, beyond, addresses.MacBeyond)
		n.Route("", netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP(gateway)})
		for _, r := range []struct {
			v4, v6 string
			route  netlink.Route
		}{
			{"10.9.0.0/16", "fd09::/64", netlink.Route{LinkIndex: int(eth1), Gw: net.ParseIP(beyond)}},
			{"10.8.0.0/16", "fd08::/64", netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP(gateway), MTU: 1300}},
			{"172.31.0.0/16", "fd31::/64", netlink.Route{Type: unix.RTN_UNREACHABLE}},
			{"172.30.0.0/16", "fd30::/64", netlink.Route{Type: unix.RTN_BLACKHOLE}},
			{"172.29.0.0/16", "fd29::/64", netlink.Route{Type: unix.RTN_PROHIBIT}},
		} {
			dst := r.v4
			if v6 {
				dst = r.v6
			}
			n.Route(dst, r.route)
		}
	}
	devices := []model.Device{
		{Index: eth0, MTU: 1500, Macs: [][6]byte{addresses.MacEth0, addresses.MacAbove}},
		{Index: eth1, MTU: 1400, Macs: [][6]byte{addresses.MacEth1}},
	}
	return n, devices, n.Err()
}

// private are the instrumented programs' own maps: all that packets change.
var private = []string{
	"flows", "flow_recent", "flow_data", "flow_back", "connections", "flow_secret", "guard_buckets", "guard_credit", "guard_clients",
	".data.settings", "syn_keys", "fragments", "orphans", "answers", "drops", "drop_events", "frontend_counts", "server_cpu", "older_owners",
	"slow_scratch", "handover_scratch", "nat_scratch", "auth_scratch", "syn_scratch", "syn_counts", "syn_hot", "syn_sources", "syn_flows", "steps", ".data.clock", ".bss", "watched", "watch_current", ".data.watch",
}

// mapped are those of them that are mmapped into this process.
var mapped = []string{"flows", "flow_data", "flow_back", "connections", "guard_clients", "guard_buckets", "syn_sources"}

// maxFlows is small, so that some cases fill the table, and clearing it before each case
// costs nothing.
const maxFlows = 16

func openPlane() (*xdp.DataPlane, error) {
	return xdp.Open(xdp.Config{
		Interfaces: []string{"eth0", "eth1"}, PinDir: "/sys/fs/bpf/fuzz-balancer",
		SourceV4: netip.AddrFrom4([4]byte(addresses.Own4[12:])), SourceV6: netip.AddrFrom16(addresses.Own6),
		MaxFrontends: 512, MaxBackends: 2048, MaxFlows: maxFlows,
		WideRings: 1 << 12, // some are narrow
	})
}

// load loads the programs of an object file with the maps of the agent.
func load(n *packetfuzz.Net, object string) (*packetfuzz.Object, map[string]*ebpf.Map, error) {
	id, err := n.Program("eth0")
	if err != nil {
		return nil, nil, err
	}
	live, err := packetfuzz.LiveMaps(ebpf.ProgramID(id))
	if err != nil {
		return nil, nil, err
	}
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, nil, err
	}
	o, err := packetfuzz.Load(spec, live, private, func(s *ebpf.CollectionSpec) error {
		for _, name := range private {
			if there := live[name]; there != nil && s.Maps[name] != nil && name != "steps" {
				s.Maps[name].MaxEntries = there.MaxEntries()
			}
		}
		const mmapable = 1 << 10
		for _, name := range mapped {
			s.Maps[name].Flags |= mmapable
		}
		steps := s.Maps["steps"]
		steps.Contents = append(steps.Contents, ebpf.MapKV{Key: uint32(0), Value: "slow_path"}, ebpf.MapKV{Key: uint32(1), Value: "handover"}, ebpf.MapKV{Key: uint32(2), Value: "syn"})
		if err := s.Variables["guard_key"].Set(hashes.GuardKey); err != nil {
			return err
		}
		return s.Variables["back_by_redirect"].Set(false)
	})
	if err != nil {
		return nil, nil, err
	}
	var secret []byte
	for _, k := range hashes.FlowSecret {
		secret = binary.NativeEndian.AppendUint64(secret, k)
	}
	return o, live, o.Maps["flow_secret"].Put(uint32(0), secret)
}
