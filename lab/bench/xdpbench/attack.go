package xdpbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cputime"
)

// attack describes what is sent between the packets of established flows.
type attack struct {
	name      string
	packet    pktgen.Packet
	kind      harnessAttackKind
	answered  bool // the program truncates or extends the frame, because it sends a reply
	protected bool // the frontend has SYN protection
	bucket    bool // all packets hash to one bucket of the flow table
}

// attackAtMost is the maximum factor by which an attack may increase the time of an
// established flow's packet.
const attackAtMost = 1.10

// attackBurst and attackRuns are ATTACK_BURST and ATTACK_RUNS. attackTable is the size of
// the flow table, which an attack could fill many times over.
const (
	attackBurst = 64
	attackRuns  = 2
	attackTable = 1 << 17
)

func (s subject) attacks() []attack {
	to := netip.AddrPortFrom(s.vip(0), 80)
	from := netip.MustParseAddrPort("12.0.0.1:1024")
	tcp := func(flags ...string) pktgen.Packet {
		return pktgen.Packet{From: from, To: to, Protocol: "tcp", Flags: flags, Payload: 26}
	}
	fragment := func(offset, payload int) pktgen.Packet {
		p := tcp()
		p.Payload = payload // a multiple of eight, together with the TCP header if there is one
		p.Fragment, p.Offset, p.More = true, offset, true
		return p
	}
	return []attack{
		{name: "SYN flood", packet: tcp("SYN")},
		{name: "SYN flood, protected", packet: tcp("SYN"), protected: true, answered: true},
		{name: "random sources", packet: tcp("ACK")},
		{name: "random sources, protected", packet: tcp("ACK"), protected: true, answered: s.method == service.FullNAT},
		{name: "one bucket", packet: tcp("SYN"), kind: harnessAttackKindATTACK_LISTED, bucket: true},
		{name: "first fragments", packet: fragment(0, 20), kind: harnessAttackKindATTACK_SOURCES},
		{name: "later fragments", packet: fragment(1480, 40), kind: harnessAttackKindATTACK_SOURCES},
		{name: "ICMP echo requests", packet: pktgen.Packet{From: from, To: to, Protocol: "icmp", ICMP: "echo", Payload: 38}, kind: harnessAttackKindATTACK_SOURCES},
		{
			name: "ICMP errors", kind: harnessAttackKindATTACK_SOURCES,
			packet: pktgen.Packet{From: from, To: to, Protocol: "icmp", ICMP: "too-big", About: netip.MustParseAddrPort("12.0.0.2:77")},
		},
	}
}

// attacked returns the subjects that are attacked.
func attacked() []subject {
	return []subject{
		tunnel.with("flow table", func(s *subject) { s.scheduler, s.flowTable = service.RoundRobin, attackTable }),
		tunnel.with("fullnat", func(s *subject) { s.method, s.flowTable, s.both = service.FullNAT, attackTable, true }),
	}
}

// attackedRig runs the program "attacked" of bpf/bench/harness.c.
type attackedRig struct {
	*Rig
	attacks *ebpf.Map
	steps   *ebpf.Map // may be nil; the kernel empties it when it is closed
}

func (r *attackedRig) Close() error {
	return errors.Join(r.Rig.Close(), r.attacks.Close(), r.steps.Close())
}

func newAttackedRig(spec *ebpf.CollectionSpec, program *ebpf.ProgramSpec, opts ebpf.CollectionOptions, nic int) (r *attackedRig, err error) {
	harness := spec.Programs[harnessProgAttacked]
	if harness.Instructions, err = graft(harness.Instructions, program.Instructions); err != nil {
		return nil, err
	}
	type loaded struct {
		Attacked *ebpf.Program `ebpf:"attacked"`
		Bench    *ebpf.Map     `ebpf:"bench"`
		Attacks  *ebpf.Map     `ebpf:"attacks"`
	}
	var out struct {
		loaded
		Steps *ebpf.Map `ebpf:"steps"`
	}
	into := any(&out)
	if spec.Maps["steps"] == nil {
		into = &out.loaded
	}
	if err := spec.LoadAndAssign(into, &opts); err != nil {
		return nil, fmt.Errorf("%s: %+v", program.Name, err)
	}
	return &attackedRig{&Rig{harness: out.Attacked, bench: out.Bench, nic: uint32(nic)}, out.Attacks, out.Steps}, nil
}

// send sends packets of the flows, alternating with bursts of the attack if on is set,
// and returns the nanoseconds per packet.
func (r *attackedRig) send(packets int, on uint32) (perPacket float64, err error) {
	var a harnessAttack
	if err := r.attacks.Lookup(uint32(0), &a); err != nil {
		return 0, err
	}
	a.Run, a.On = 0, on
	a.Wait = a.Ns / max(1, a.Runs)
	r.state.Ns, r.state.Timed = 0, 0
	if err := errors.Join(r.attacks.Put(uint32(0), &a), r.bench.Put(uint32(0), &r.state)); err != nil {
		return 0, err
	}
	frame := make([]byte, len(r.state.Frame)*8)
	opts := ebpf.RunOptions{
		Data: frame, Repeat: uint32(packets / attackBurst * (attackRuns + 1)),
		Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: r.nic},
	}
	verdict, err := r.harness.Run(&opts)
	if err := errors.Join(err, r.bench.Lookup(uint32(0), &r.state)); err != nil {
		return 0, err
	}
	if verdict != uint32(pass) || r.state.Timed == 0 {
		return 0, fmt.Errorf("the harness answers %d, and has timed %d packets", verdict, r.state.Timed)
	}
	return float64(r.state.Ns) / float64(r.state.Timed), nil
}

// attacks measures how attacks affect the packets of established flows.
func (m *meter) attacks(ctx context.Context) error {
	for _, s := range attacked() {
		for _, a := range s.attacks() {
			if name := s.name + ", attacked: " + a.name; m.wanted(name) {
				if err := m.attack(ctx, s, a, name); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

func (m *meter) attack(ctx context.Context, s subject, a attack, name string) (err error) {
	sc := &scene{meter: m, subject: s, load: thou, name: name}
	defer func() { err = errors.Join(err, CloseAll(sc.open)) }()
	r, floor, err := sc.attacked(a)
	if err != nil {
		return err
	}
	if err := m.Balancer.Do(func() error { return sc.establish(r) }); err != nil {
		return err
	}
	if a.protected { // after the flows are established
		f := sc.frontend(0, 1)
		f.SYNProtection = service.SYNAlways
		if err := sc.under.Upsert(f); err != nil {
			return err
		}
	}
	before, err := sc.established()
	if err != nil {
		return err
	}
	r.state.Verdicts = [8]uint64{}
	took, err := m.rounds(ctx, m.Balancer, []contender{
		{"harness", func() (float64, error) { return floor.send(sc.packets(), 0) }},
		{"without", func() (float64, error) { return r.send(sc.packets(), 0) }},
		{"attacked", func() (float64, error) { return r.send(sc.packets(), 1) }},
	})
	if err != nil {
		return err
	}
	if err := sc.unharmed(r, before); err != nil {
		return err
	}
	ratios := make([]float64, len(took[0]))
	for i := range ratios { // of the program without the harness
		ratios[i] = (took[2][i] - took[0][i]) / (took[1][i] - took[0][i])
	}
	m.report.Rows = append(m.report.Rows, bench.Compared(name, "ns/packet", "without", took[2], took[1], ratios).AtMost(attackAtMost))
	return nil
}

// attacked opens the load balancer with one frontend, and the harness both around it and
// around an empty program.
func (s *scene) attacked(a attack) (r, floor *attackedRig, err error) {
	d, err := s.Open(xdp.Config{MaxFlows: s.flowTable})
	if err != nil {
		return nil, nil, err
	}
	s.open, s.under = append(s.open, d), d.DataPlane
	if err := d.Upsert(s.frontend(0, 1)); err != nil {
		return nil, nil, err
	}
	balancer, pins, err := d.Chained()
	if err != nil {
		return nil, nil, err
	}
	spec, err := harnessWith(balancer)
	if err != nil {
		return nil, nil, err
	}
	r, err = newAttackedRig(spec, balancer.Programs["balancer"], ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}}, s.NIC)
	if err != nil {
		return nil, nil, err
	}
	s.open, s.last = append(s.open, r), r.Rig
	bare, err := loadHarness()
	if err != nil {
		return nil, nil, err
	}
	floor, err = newAttackedRig(bare, bare.Programs[harnessProgFloorTx], ebpf.CollectionOptions{}, s.NIC)
	if err != nil {
		return nil, nil, err
	}
	s.open = append(s.open, floor)
	for _, r := range []*attackedRig{r, floor} {
		if r.state, err = s.state(s.load); err != nil {
			return nil, nil, err
		}
	}
	return r, floor, s.arm(r, a, pins)
}

// arm configures the attack in the harness.
func (s *scene) arm(r *attackedRig, a attack, pins string) error {
	out := harnessAttack{Kind: a.kind}
	if a.answered {
		out.End = 1
	}
	frame, err := a.packet.Frame()
	if err != nil {
		return err
	}
	copy(frame, macBalancer)
	if most := len(out.Frame) * 8; len(frame) > most { // an ICMP error may quote less of the packet
		frame = frame[:most]
		binary.BigEndian.PutUint16(frame[16:], uint16(most-14))
	} else {
		frame = append(frame, make([]byte, most-len(frame))...)
	}
	for i := range out.Frame {
		out.Frame[i] = binary.NativeEndian.Uint64(frame[i*8:])
	}
	if a.bucket {
		if err := s.fillBucket(&out, a.packet.To, pins); err != nil {
			return err
		}
	}
	return r.attacks.Put(uint32(0), &out)
}

// establish sends some packets of every flow and, with fullnat, the replies of their
// backends. Only a reply makes a flow established, so that no flood evicts it.
func (s *scene) establish(r *attackedRig) error {
	return cputime.Pinned(func() error {
		if _, err := r.send(s.packets(), 0); err != nil || s.method != service.FullNAT {
			return err
		}
		back, err := s.answers(r.Rig)
		if err != nil {
			return err
		}
		if _, err := (&attackedRig{back, r.attacks, nil}).send(s.packets(), 0); err != nil {
			return fmt.Errorf("answers: %w", err)
		}
		_, err = r.send(s.packets(), 0)
		return err
	})
}

// established returns the measured flows and their backends.
func (s *scene) established() (map[netip.AddrPort]netip.AddrPort, error) {
	found := map[netip.AddrPort]netip.AddrPort{}
	first := netip.MustParseAddr(firstClient)
	for f, err := range s.under.EachFlow(dataplane.FlowQuery{}) {
		if err != nil {
			return nil, err
		}
		if f.Client.Addr() == first && f.State == "established" {
			found[f.Client] = f.Server
		}
	}
	if len(found) != int(s.flows) {
		return nil, fmt.Errorf("%d of %d flows are established", len(found), s.flows)
	}
	return found, nil
}

// unharmed returns an error if a flow was evicted, sent to another backend or denied.
func (s *scene) unharmed(r *attackedRig, before map[netip.AddrPort]netip.AddrPort) error {
	after, err := s.established()
	if err != nil {
		return err
	}
	for client, server := range before {
		if after[client] != server {
			return fmt.Errorf("the flow of %s, which was %s's, is %s's", client, server, after[client])
		}
	}
	total := uint64(0)
	for _, n := range r.state.Verdicts {
		total += n
	}
	if denied := total - r.state.Verdicts[s.want]; denied > 0 {
		return fmt.Errorf("%d of %d packets of established flows were denied: %v", denied, total, s.drops())
	}
	var a harnessAttack
	if err := r.attacks.Lookup(uint32(0), &a); err != nil {
		return err
	}
	s.report.Note("%s: %d packets of %d flows had no other verdict, and no flow was lost, during %d packets of the attack, verdicts %v, drops %v",
		s.name, total, s.flows, a.Turn, a.Verdicts, s.drops())
	return nil
}

// fillBucket finds flows that all hash to the same flow table bucket as the first
// measured flow. An attacker could only do this with the table's key.
func (s *scene) fillBucket(out *harnessAttack, vip netip.AddrPort, pins string) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pins, "flow_secret"), nil)
	if err != nil {
		return err
	}
	defer m.Close()
	var secret [12]uint64
	if err := m.Lookup(uint32(0), &secret); err != nil {
		return err
	}
	table, err := ebpf.LoadPinnedMap(filepath.Join(pins, "flows"), nil)
	if err != nil {
		return err
	}
	defer table.Close()
	setOf := func(client netip.AddrPort) uint64 {
		return flowTag(&secret, client, vip) >> 32 * uint64(table.MaxEntries()) >> 32
	}
	want := setOf(netip.AddrPortFrom(netip.MustParseAddr(firstClient), 1024))
	for i, found := uint32(0), 0; found < len(out.Clients); i++ {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{12, byte(i >> 22), byte(i >> 14)}), uint16(i&0x3fff|1024))
		if setOf(client) != want {
			continue
		}
		out.Clients[found] = binary.NativeEndian.Uint32(client.Addr().AsSlice())
		out.Ports[found] = netorder.Port(client.Port())
		found++
	}
	return nil
}

// flowTag is flow_tag of bpf/balancer/flow.h, for a TCP flow over IPv4.
func flowTag(secret *[12]uint64, client, vip netip.AddrPort) uint64 {
	word := func(a netip.Addr) uint64 { return uint64(binary.NativeEndian.Uint32(a.AsSlice())) }
	h := secret[0]*word(client.Addr()) + secret[4]*word(vip.Addr()) + secret[9]*6
	h += secret[8] * uint64(uint32(netorder.Port(client.Port()))<<16|uint32(netorder.Port(vip.Port())))
	for range 2 {
		h ^= h >> 32
		h *= 0xd6e8feb86659fd93
	}
	return h ^ h>>32
}
