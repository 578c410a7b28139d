package dsr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The node of all worlds:
//
//	eth0  the network: 10.0.0.105/16, 2001:db8::105/64, MTU 1400; the default gateway
//	      is .110, load balancers are from .120 on, another node .106
//	pod0  pods: 172.16.1.1/24, 2001:db8:16:1::1/64, MTU 1500; .2 and .3, whose MAC
//	      address is not known
//
// Pods of the other node are in 172.16.2.0/24, 2001:db8:16:2::/64; 172.31.0.0/16 and
// fd31::/64 are unreachable.
var macs = map[string][6]byte{"eth0": {2, 0, 0, 0, 0, 5}, "pod0": {2, 0, 0, 0, 1, 1}}

var macGateway = [6]byte{2, 0, 0, 0, 0, 1}

func addr(text string) wire.Addr { return netip.MustParseAddr(text).As16() }

// addresses by family.
var (
	vips         = [2][]string{{"10.1.1.1", "10.1.1.2", "10.1.1.3"}, {"2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3"}}
	locals       = [2][]string{{"172.16.1.2", "172.16.1.3", "10.0.0.105"}, {"2001:db8:16:1::2", "2001:db8:16:1::3", "2001:db8::105"}}
	remotes      = [2][]string{{"172.16.2.2", "172.16.2.3", "172.31.0.2"}, {"2001:db8:16:2::2", "2001:db8:16:2::3", "fd31::2"}}
	clients      = [2][]string{{"192.168.0.1", "192.168.0.2", "192.168.0.3"}, {"2001:db8:c::1", "2001:db8:c::2", "2001:db8:c::3"}}
	unknownAddrs = [2][]string{{"203.0.113.9", "172.16.1.77", "127.0.0.1", "224.0.0.1"}, {"2001:db8:99::9", "fe80::1", "::1", "ff02::1"}}
)

func newNet() (*packetfuzz.Net, error) {
	n, err := packetfuzz.NewNet("fuzz-dsr")
	if err != nil {
		return nil, err
	}
	eth0 := n.Wire("eth0", macs["eth0"], 1400, "10.0.0.105/16", "2001:db8::105/64")
	pod0 := n.Wire("pod0", macs["pod0"], 1500, "172.16.1.1/24", "2001:db8:16:1::1/64")
	for i, a := range []string{"10.0.0.110", "10.0.0.106", "10.0.0.120", "2001:db8::110", "2001:db8::106", "2001:db8::120"} {
		n.Neighbor(eth0, a, [6]byte{2, 0, 0, 0, 0, byte(1 + i)})
	}
	n.Neighbor(pod0, locals[0][0], [6]byte{2, 0, 0, 0, 1, 2})
	n.Neighbor(pod0, locals[1][0], [6]byte{2, 0, 0, 0, 1, 2})
	for i, gateway := range []string{"10.0.0.110", "2001:db8::110"} {
		n.Route("", netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP(gateway)})
		n.Route([]string{"172.16.2.0/24", "2001:db8:16:2::/64"}[i], netlink.Route{LinkIndex: int(eth0), Gw: net.ParseIP([]string{"10.0.0.106", "2001:db8::106"}[i])})
		n.Route([]string{"172.31.0.0/16", "fd31::/64"}[i], netlink.Route{Type: unix.RTN_UNREACHABLE})
	}
	return n, n.Err()
}

// private are the instrumented programs' own maps.
var private = []string{"flow_table", "server_counters", "kept_rows", "server_scratch", "auth_scratch", "server_fragments", ".data.key"}

// maxFlows is small, so that clearing the table before each case costs nothing.
const maxFlows = 64

func openAgent() (*dsr.Agent, error) {
	return dsr.Open(dsr.Config{PinDir: "/sys/fs/bpf/fuzz-dsr", MaxFlows: maxFlows, Uplinks: []string{"eth0"}})
}

// liveMaps returns the maps of the agent's programs.
func liveMaps() (map[string]*ebpf.Map, error) {
	nic, err := net.InterfaceByName("eth0")
	if err != nil {
		return nil, err
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: nic.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, err
	}
	if len(q.Programs) == 0 {
		return nil, fmt.Errorf("no program at eth0")
	}
	return packetfuzz.LiveMaps(q.Programs[0].ID)
}

func load(object string) (*packetfuzz.Object, map[string]*ebpf.Map, error) {
	live, err := liveMaps()
	if err != nil {
		return nil, nil, err
	}
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, nil, err
	}
	o, err := packetfuzz.Load(spec, live, private, func(s *ebpf.CollectionSpec) error {
		s.Maps["flow_table"].MaxEntries = live["flow_table"].MaxEntries()
		return s.Variables["flow_key"].Set(flowKey)
	})
	return o, live, err
}

// flowKey replaces a key that an agent generates at random.
var flowKey [10]uint64

func init() {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range flowKey {
		flowKey[i] = rng.Uint64() | 1
	}
}

func word32(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) }

// tableHash is the hash of a flow, implemented again (bpf/include/hash.h).
func tableHash(t *wire.Tuple) uint32 {
	of := func(k []uint64, a *wire.Addr) uint64 {
		return k[0]*word32(a[12:]) + k[1]*word32(a[:]) + k[2]*word32(a[4:]) + k[3]*word32(a[8:])
	}
	swap := func(p uint16) uint64 { return uint64(p<<8 | p>>8) }
	h := of(flowKey[:], &t.Src) + of(flowKey[4:], &t.Dst)
	h += flowKey[8]*(swap(t.SPort)<<16|swap(t.DPort)) + flowKey[9]*(uint64(t.Proto)|0x100)
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0x6a09e667f3bcc909
	return uint32(h >> 32)
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// Enter implements packetfuzz.Target: it configures the agent with entries of all kinds.
func (t *Target) Enter(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 0xd52))
	if err := packetfuzz.SetForwarding(rng); err != nil {
		return err
	}
	t.entries = t.entries[:0]
	for _, v6 := range []bool{false, true} {
		for i := range 8 {
			t.entries = append(t.entries, frontendOf(rng, v6, i)...)
		}
	}
	t.sources = randomSources(rng, t.entries)
	t.chooseSenders(rng, number)
	if err := t.configureAll(); err != nil {
		return err
	}
	t.model.routes.Forget()
	t.generator.enter(t)
	return nil
}

// configureAll gives the agent its configuration, which rejects what is impossible.
func (t *Target) configureAll() error {
	if err := t.agent.SetBalancers(t.senders); err != nil {
		return err
	}
	if err := t.setEntries(); err != nil {
		return err
	}
	if err := t.agent.SetSources(t.sources); err != nil {
		return err
	}
	t.config.sources = t.sources
	if err := t.reader.forgetSenders(t.senders); err != nil {
		return err
	}
	return t.reader.readAll(&t.config, t.entries)
}

// configure gives the agent other entries, which differ for the touched VIPs.
func (t *Target) configure() error {
	if err := t.setEntries(); err != nil {
		return err
	}
	return t.reader.read(&t.config, t.entries, t.touched)
}

// setEntries gives the agent the entries. Those that it rejects are not in its rows. After
// any other error, it would change its rows later, in the background.
func (t *Target) setEntries() error { return withoutRejected(t.agent.Set(t.entries)) }

func withoutRejected(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if _, rejected := errors.AsType[*dsr.RejectedError](err); rejected {
			return nil
		}
		return err
	}
	var others []error
	for _, err := range joined.Unwrap() {
		others = append(others, withoutRejected(err))
	}
	return errors.Join(others...)
}

// drift describes what the agent has changed since the model read it: a difference is then
// one of the harness, or of the agent, and not of a program.
func (t *Target) drift() string {
	now, vips := config{rows: map[key]*row{}, next: map[key]uint16{}}, map[wire.Addr]bool{}
	for k := range t.reader.keys {
		vips[k.vip] = true
	}
	if err := t.reader.read(&now, t.entries, vips); err != nil {
		return "\n the agent's rows cannot be read: " + err.Error()
	}
	var text strings.Builder
	for k := range t.reader.keys {
		before, after := t.config.rows[k], now.rows[k]
		if (before == nil) != (after == nil) || before != nil && *before != *after {
			fmt.Fprintf(&text, "\n the agent has changed row %+v from %+v to %+v", k, before, after)
		}
		was, listed := t.config.next[k]
		if is, still := now.next[k]; still != listed || is != was {
			fmt.Fprintf(&text, "\n the agent has changed the backend %+v in lists", k)
		}
	}
	return text.String()
}

func (t *Target) touch(e *dsr.Entry) { t.touched[e.VIP.As16()] = true }

// chooseSenders selects the load balancers, and the accepted ones. Other worlds use other
// addresses.
func (t *Target) chooseSenders(rng *rand.Rand, number uint64) {
	t.senders = nil
	if rng.IntN(2) == 0 {
		t.senders = []netip.Addr{}
	}
	for v6, format := range []string{"10.0.0.%d", "2001:db8::%x"} {
		t.balancers[v6] = t.balancers[v6][:0]
		for i := range uint64(2) {
			a := fmt.Sprintf(format, 120+2*(number%60)+i)
			t.balancers[v6] = append(t.balancers[v6], a)
			if t.senders != nil && rng.IntN(4) > 0 {
				t.senders = append(t.senders, netip.MustParseAddr(a))
			}
		}
	}
}

// frontendOf returns the entries of a frontend: with backends here and elsewhere.
func frontendOf(rng *rand.Rand, v6 bool, i int) (all []dsr.Entry) {
	e := dsr.Entry{Key: service.Key{
		VIP: netip.MustParseAddr(vips[family(v6)][rng.IntN(2)]), Port: uint16(80 + i),
		Protocol: []service.Protocol{service.TCP, service.UDP, service.SCTP, service.TCP}[rng.IntN(4)],
	}}
	e.Method = pick(rng, []service.Method{service.Tunnel, service.Tunnel, service.DSRNAT, service.DSRNAT, service.DR})
	port := e.Port
	if rng.IntN(2) == 0 && e.Protocol != service.SCTP && e.Method != service.DR {
		port += 8000
	}
	switch rng.IntN(8) {
	case 0:
		e.Port, e.Last, port = 1000, 1499, 0
		e.VIP = netip.MustParseAddr(vips[family(v6)][2])
	case 1:
		e.Port, e.Last, e.Protocol, port = 0, 65535, service.AnyProtocol, 0
		e.VIP = netip.MustParseAddr(vips[family(v6)][2])
	}
	server6 := v6
	if e.Method == service.Tunnel && rng.IntN(4) == 0 {
		server6 = !v6
	}
	for _, from := range [][]string{locals[family(server6)], remotes[family(server6)]} {
		for j, a := range from {
			if rng.IntN(2) == 0 {
				continue
			}
			e.Server = netip.AddrPortFrom(netip.MustParseAddr(a), port)
			e.Deliver = netip.Addr{}
			if server6 != v6 {
				e.Deliver = netip.MustParseAddr(locals[family(v6)][j])
			}
			all = append(all, e)
		}
	}
	return all
}

func randomSources(rng *rand.Rand, entries []dsr.Entry) (all []dsr.Sources) {
	seen := map[service.Key]bool{}
	for _, e := range entries {
		if seen[e.Key] || rng.IntN(4) > 0 {
			continue
		}
		seen[e.Key] = true
		s := dsr.Sources{Key: e.Key}
		for _, text := range []string{"192.168.0.0/31", "2001:db8:c::/127", "0.0.0.0/1", "8000::/1", "192.168.0.2/32", "::/1", "::/0"} {
			switch rng.IntN(4) {
			case 0:
				s.Allow = append(s.Allow, netip.MustParsePrefix(text))
			case 1:
				s.Deny = append(s.Deny, netip.MustParsePrefix(text))
			}
		}
		all = append(all, s)
	}
	return all
}
