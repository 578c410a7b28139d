package xdpbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The node of the DSR agent:
//
//	10.0.0.110 ── up0 [node 10.0.0.105] pod0 ── 172.16.1.2
const (
	dsrPins    = "/sys/fs/bpf/bench-dsr"
	nodeAddr   = "10.0.0.105/16"
	nodeRouter = "10.0.0.110"
)

var (
	dsrClient = netip.MustParseAddrPort("192.168.0.7:1234")
	dsrVIP    = netip.MustParseAddrPort("10.1.1.1:80")
	dsrPod    = netip.MustParseAddrPort("172.16.1.2:8080")
	dsrDirect = netip.MustParseAddrPort("172.16.1.2:9090")

	dsrBalancer = netip.MustParseAddr("172.16.9.9")
)

// Verdicts of a tc program (linux/pkt_cls.h): continue, and redirect.
const (
	actUnspec   = -1
	actRedirect = 7
)

// half contains the programs of bpf/bench/dsr.c on the maps of a DSR agent.
type dsrAgent struct {
	dsrObjects
	checks checks
	node   *netns.NS
	under  *dsr.Agent
	pod    uint32
	state  dsrServerBench
	frame  []byte
}

// checks selects what the DSR agent verifies in addition.
type checks int

const (
	noChecks     checks = iota
	checkSender         // the sender's address
	checkSendTag        // that and the authentication tag
)

func (c checks) String() string {
	return map[checks]string{checkSender: "sender checked", checkSendTag: "sender and tag checked"}[c]
}

// benchKeys is a key like that of a node.
var benchKeys = nodekey.Keys{{K0: 0x0123456789abcdef, K1: 0xfedcba9876543210, ID: 0x5f}}

func newDSRAgent(c checks) (*dsrAgent, error) {
	h := &dsrAgent{checks: c}
	if err := h.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("DSR agent: %w", err), h.Close())
	}
	return h, nil
}

func (h *dsrAgent) make() (err error) {
	if h.node, err = netns.Create("node"); err != nil {
		return err
	}
	if err := h.node.Do(h.wire); err != nil {
		return err
	}
	err = h.node.Do(func() error {
		h.under, err = dsr.Open(dsr.Config{PinDir: dsrPins, Log: slog.New(slog.DiscardHandler)})
		return err
	})
	if err != nil {
		return err
	}
	if h.checks != noChecks {
		if err := h.under.SetBalancers([]netip.Addr{dsrBalancer}); err != nil {
			return err
		}
	}
	if err := h.under.Set(dsrEntries()); err != nil {
		return err
	}
	return h.load(nil)
}

func dsrEntries() (all []dsr.Entry) {
	for server, method := range map[netip.AddrPort]service.Method{dsrPod: service.Tunnel, dsrDirect: service.DSRNAT} {
		all = append(all, dsr.Entry{
			Key:    service.Key{VIP: dsrVIP.Addr(), Port: dsrVIP.Port(), Protocol: service.TCP},
			Method: method, Server: server,
		})
	}
	return all
}

// wire creates the node's two devices, in its namespace.
func (h *dsrAgent) wire() error {
	if err := netns.WriteSysctl("net.ipv4.ip_forward", "1"); err != nil {
		return err
	}
	for _, name := range []string{"up", "pod"} {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name + "0"}, PeerName: name + "1"}); err != nil {
			return err
		}
		for _, end := range []string{name + "0", name + "1"} {
			if err := netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: end}}); err != nil {
				return err
			}
		}
	}
	up, err := netlink.LinkByName("up0")
	if err != nil {
		return err
	}
	pod, err := netlink.LinkByName("pod0")
	if err != nil {
		return err
	}
	h.pod = uint32(pod.Attrs().Index)
	addr, err := netlink.ParseAddr(nodeAddr)
	if err != nil {
		return err
	}
	to, err := netlink.ParseIPNet(dsrPod.Addr().String() + "/32")
	return errors.Join(err, netlink.AddrAdd(up, addr),
		netlink.RouteAdd(&netlink.Route{LinkIndex: up.Attrs().Index, Gw: netip.MustParseAddr(nodeRouter).AsSlice()}),
		netlink.RouteAdd(&netlink.Route{LinkIndex: pod.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}))
}

// load loads the programs on the DSR agent's maps: this build's, or those of another
// object.
func (h *dsrAgent) load(object io.ReaderAt) error {
	spec, err := loadDsr()
	if object != nil {
		spec, err = bpfload.Other(object, loadDsr)
	}
	if err != nil {
		return err
	}
	folder, err := h.under.Pins()
	if err != nil {
		return err
	}
	maps, err := pinned(spec, folder)
	if err != nil {
		return err
	}
	for _, m := range maps {
		defer m.Close()
	}
	if err := spec.Variables[dsrVarFlowSets].Set(spec.Maps[dsrMapFlowTable].MaxEntries); err != nil {
		return err
	}
	if err := spec.Variables[dsrVarStoresInOrder].Set(runtime.GOARCH == "amd64"); err != nil {
		return err
	}
	if h.checks == checkSendTag {
		// Each packet belongs to another flow, so its tag is wrong. A wrong tag costs as
		// much as a correct one, and is only counted.
		if err := auth.Preset(spec, nodekey.Auth{Keys: benchKeys}); err != nil {
			return err
		}
	}
	if err := spec.LoadAndAssign(&h.dsrObjects, &ebpf.CollectionOptions{MapReplacements: maps}); err != nil {
		return fmt.Errorf("%+v", err)
	}
	checked := uint32(0)
	if h.checks != noChecks {
		checked = 1
	}
	return errors.Join(h.RowsGeneration.Set(uint32(1)), h.BalancersChecked.Set(checked)) // as the agent sets them
}

// Close removes everything.
func (h *dsrAgent) Close() error {
	var errs []error
	if h.under != nil {
		errs = append(errs, h.under.Detach(), os.RemoveAll(dsrPins))
	}
	if h.BenchEmpty != nil {
		errs = append(errs, h.dsrObjects.Close())
	}
	if h.node != nil {
		errs = append(errs, h.node.Close())
	}
	return errors.Join(errs...)
}

// set configures frames like this one, with new headers, of the given number of flows, a
// power of two. side selects whether the client is the source or the destination. option
// follows the packet's first header.
func (h *dsrAgent) set(p pktgen.Packet, tunneled bool, option []byte, side int, flows uint32) error {
	const eth, ip, tcp = 14, 20, 20
	frame, err := p.Frame()
	if err != nil {
		return err
	}
	at := eth + ip
	if len(option) > 0 {
		frame = append(frame[:at:at], append(option, frame[at:]...)...)
		headIPv4(frame[eth:], ip+len(option), unix.IPPROTO_TCP, p.From.Addr(), p.To.Addr())
	}
	inner := eth
	if tunneled {
		tag := []byte(nil)
		if h.checks == checkSendTag {
			tag = append([]byte{0x9e, 10, benchKeys[0].ID}, make([]byte, 9)...) // an option with only a tag
		}
		frame = append(frame[:eth:eth], append(append(make([]byte, ip), tag...), frame[eth:]...)...)
		headIPv4(frame[eth:], ip+len(tag), unix.IPPROTO_IPIP, dsrBalancer, dsrPod.Addr())
		inner += ip + len(tag)
	}
	l4 := inner + ip + len(option)
	h.frame = frame
	h.state = dsrServerBench{
		Bytes: uint32(l4 + tcp), Len: uint32(len(frame)), Flows: flows - 1,
		Addr: uint32(inner + 12 + 4*side), Port: uint32(l4 + 2*side),
	}
	copy(h.state.Head[:], frame[:h.state.Bytes])
	return h.ServerBench.Put(uint32(0), h.state)
}

// headIPv4 writes an IPv4 header of the given length at the start of b.
func headIPv4(b []byte, bytes int, proto byte, from, to netip.Addr) {
	b[0], b[8], b[9], b[10], b[11] = 0x40|byte(bytes/4), 64, proto, 0, 0
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^wire.Fold(wire.Sum(b[:bytes])))
}

// run returns the pinned thread's CPU time per packet, in nanoseconds.
func (h *dsrAgent) run(prog *ebpf.Program, packets, want int) (perPacket float64, err error) {
	var context [48]uint32
	const ifindex = 10 // its index among the words of struct __sk_buff
	context[ifindex] = h.pod
	opts := ebpf.RunOptions{Data: h.frame, Repeat: uint32(packets), Context: context[:]}
	began := cputime.Thread()
	verdict, err := prog.Run(&opts)
	if err != nil {
		return 0, err
	}
	used := cputime.Thread() - began
	if int(int32(verdict)) != want {
		return 0, fmt.Errorf("verdict %d, want %d", int32(verdict), want)
	}
	return float64(used.Nanoseconds()) / float64(packets), nil
}

// halfPackets is the number of packets in a row.
const dsrPackets = 1 << 16

// warm sets a case's frames, and sends every flow once. If the case has a first case that
// creates the flows, it does the same for that one before.
func (h *dsrAgent) warm(c dsrCase) error {
	if c.first != nil {
		if err := h.warm(*c.first); err != nil {
			return err
		}
	}
	if err := h.set(c.packet, c.tunneled, c.option, c.side, c.flows); err != nil {
		return err
	}
	_, err := h.send(c)
	return err
}

// send sends a case's frames to the matching program.
func (h *dsrAgent) send(c dsrCase) (perPacket float64, err error) {
	if c.answer {
		return h.run(h.BenchFromServer, dsrPackets, actRedirect)
	}
	return h.run(h.BenchToServer, dsrPackets, actUnspec)
}

// overhead returns the time of the harness per packet of a case, computed from the times
// of its own programs: empty, store, room, rooms.
func (c dsrCase) overhead(took [4]float64) float64 {
	ns := took[1] - took[0]
	if c.tunneled || len(c.option) > 0 {
		ns += (took[3] - took[2]) / 7
	}
	return ns
}

// halfCase is one kind of packet at the backend's node.
type dsrCase struct {
	name     string
	flows    uint32
	packet   pktgen.Packet
	tunneled bool
	option   []byte
	side     int // 1: the client is the destination
	answer   bool
	first    *dsrCase // is sent before, and makes the flows
	checks   checks
	goal     float64
}

func dsrCases() (all []dsrCase) {
	toward := func(to netip.AddrPort) pktgen.Packet {
		return pktgen.Packet{From: dsrClient, To: to, Protocol: "tcp", Payload: 26, TTL: 63}
	}
	option := append([]byte{0x9e, 8}, dsrVIP.Addr().AsSlice()...) // OPTION4_TYPE
	option = binary.BigEndian.AppendUint16(option, dsrVIP.Port())
	for _, l := range []load{one, thou, sixty} {
		known := dsrCase{name: "DSR agent, known flow, " + l.name, flows: uint32(l.flows), packet: toward(dsrVIP), tunneled: true, goal: 3.3}
		all = append(all, known,
			dsrCase{name: "DSR agent, answer, " + l.name, flows: uint32(l.flows), side: 1, answer: true, first: &known,
				packet: pktgen.Packet{From: dsrPod, To: dsrClient, Protocol: "tcp", Payload: 26}})
	}
	for _, c := range []checks{checkSender, checkSendTag} {
		all = append(all, dsrCase{name: "DSR agent, known flow, " + c.String() + ", " + thou.name, flows: uint32(thou.flows), packet: toward(dsrVIP), tunneled: true, checks: c})
	}
	optioned := dsrCase{name: "DSR agent, dsr-nat, known flow, with the option, 1 k flows", flows: 1 << 10, packet: toward(dsrDirect), option: option}
	return append(all, optioned,
		dsrCase{name: "DSR agent, dsr-nat, known flow, 1 k flows", flows: 1 << 10, packet: toward(dsrDirect), first: &optioned})
}

// dsrAgent measures packets of known flows at the backend's node, in both directions:
// the total time of a packet in BPF_PROG_TEST_RUN, including its own loop, less the time
// to restore the packet.
func (m *meter) dsrAgent(ctx context.Context) (err error) {
	var h *dsrAgent
	defer func() {
		if h != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	for _, c := range dsrCases() {
		if !m.wanted(c.name) {
			continue
		}
		if h != nil && h.checks != c.checks {
			if err := h.Close(); err != nil {
				return err
			}
			h = nil
		}
		if h == nil {
			if h, err = newDSRAgent(c.checks); err != nil {
				return err
			}
			m.report.Note("DSR agent: without the cost of rewriting the headers and restoring the removed room, measured in the same round")
		}
		measure := m.dsrCase
		if m.o.Against != nil {
			measure = m.compareDSR
		}
		if err := measure(ctx, h, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (m *meter) dsrCase(ctx context.Context, h *dsrAgent, c dsrCase) (err error) {
	floor, err := FloorRig(floorBare, 1, ringSize, m.NIC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.Close()) }()
	if floor.state, err = (subject{}).state(one); err != nil {
		return err
	}
	if err := h.node.Do(func() error { return h.warm(c) }); err != nil {
		return err
	}
	turn := func(name string, prog *ebpf.Program, want int) contender {
		return contender{name, func() (float64, error) { return h.run(prog, dsrPackets, want) }}
	}
	all := []contender{
		{floorBare, func() (float64, error) { return floor.Run(dsrPackets) }},
		turn("empty", h.BenchEmpty, actUnspec), turn("store", h.BenchStore, actUnspec),
		turn("room", h.BenchRoom, actUnspec), turn("rooms", h.BenchRooms, actUnspec),
		{c.name, func() (float64, error) { return h.send(c) }},
	}
	took, err := m.rounds(ctx, h.node, all)
	if err != nil {
		return err
	}
	for i, ns := range took[5] {
		took[5][i] = ns - c.overhead([4]float64{took[1][i], took[2][i], took[3][i], took[4][i]})
	}
	row := m.row(c.name, []contender{all[0], all[5]}, [][]float64{took[0], took[5]})
	if c.goal > 0 {
		row = row.AtMost(c.goal)
	}
	m.report.Rows = append(m.report.Rows, row)
	return nil
}
