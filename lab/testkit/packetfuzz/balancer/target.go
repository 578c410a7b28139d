// Package balancer fuzzes the programs of bpf/balancer.c: balancer, slow_path, handover and
// syn. The real agent (dataplane/xdp) writes their configuration; a model predicts what
// happens to each packet.
//
// What belongs here: the target with its network, worlds, and the comparison of the
// programs' maps with the model. What does not: the prediction (model), the generation of
// packets (generate), and the reader of what the agent has written (programmed).
package balancer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/generate"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/model"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Target is the load balancer's programs with their agent and their model.
type Target struct {
	net     *packetfuzz.Net
	plane   *xdp.DataPlane
	object  *packetfuzz.Object
	live    map[string]*ebpf.Map
	reader  *programmed.Reader
	devices []model.Device
	runner  packetfuzz.Runner
	program int
	context [2][]byte // struct xdp_md, by device

	model    *model.Model
	config   programmed.Config
	features packetfuzz.Features
	memory   memory
	drops    *packetfuzz.Counters
	start    uint64 // start of the next case

	world     []desired.Frontend // as in the world
	asked     []desired.Frontend // as they are now
	all       []netip.Addr       // load balancers
	draining  []netip.Addr
	changed   map[int]bool // frontends that this case has changed
	generator *generate.Generator
	outcomes  map[string]uint64
	unsure    bool // after a violation: everything must be cleared

	noPressure bool                                // in this world
	ports      uint16                              // for fullnat in this world
	pressure0  uint64                              // seed of the frontends' pressure
	pressures  map[service.Key]programmed.Pressure // changed in this case
	keys       int                                 // state of cookieKeys
}

// memory are maps of the programs that are mmapped here.
type memory struct {
	flows, recent, data, back, connections, guardClients, guardBuckets, guardCredit []byte
	natScratch, slowScratch, sources, events                                        []byte
	orphans                                                                         packetfuzz.Ring
	dataLayout, synLayout                                                           packetfuzz.Layout
}

// New opens the agent and loads the programs of an object file, either the agent's own or
// one with bugs.
func New(object string) (*Target, error) {
	t := &Target{changed: map[int]bool{}, outcomes: map[string]uint64{}}
	if err := t.open(object); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Target) open(object string) (err error) {
	if t.net, t.devices, err = newNet(); err != nil {
		return err
	}
	if t.plane, err = openPlane(); err != nil {
		return err
	}
	if err = errors.Join(t.plane.Prepare(), t.prepareProtection()); err != nil {
		return err
	}
	if t.object, t.live, err = load(t.net, object); err != nil {
		return err
	}
	if t.reader, err = programmed.NewReader(t.object, t.live); err != nil {
		return err
	}
	t.program = t.object.Programs["balancer"].FD()
	for i, d := range t.devices {
		t.context[i] = make([]byte, 24)
		binary.NativeEndian.PutUint32(t.context[i][12:], d.Index)
	}
	if err := t.mapMemory(); err != nil {
		return err
	}
	if t.drops, err = packetfuzz.NewCounters(t.object, "drops", "drop_reason", "DROP_"); err != nil {
		return err
	}
	return t.newModel()
}

func (t *Target) mapMemory() (err error) {
	for name, to := range map[string]*[]byte{
		"flows": &t.memory.flows, "flow_recent": &t.memory.recent, "flow_data": &t.memory.data, "flow_back": &t.memory.back, "connections": &t.memory.connections,
		"guard_clients": &t.memory.guardClients, "guard_buckets": &t.memory.guardBuckets, "guard_credit": &t.memory.guardCredit,
		"nat_scratch": &t.memory.natScratch, "slow_scratch": &t.memory.slowScratch, "syn_sources": &t.memory.sources, "syn_counts": &t.memory.events,
	} {
		if *to, err = packetfuzz.Memory(t.object.Maps[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if t.memory.orphans, err = packetfuzz.NewRing(t.object.Maps["orphans"]); err != nil {
		return err
	}
	if t.memory.synLayout, err = packetfuzz.LayoutOf(t.object.Spec.Types, "syn_flow"); err != nil {
		return err
	}
	t.memory.dataLayout, err = packetfuzz.LayoutOf(t.object.Spec.Types, "flow_data")
	return err
}

func (t *Target) newModel() error {
	routes, err := packetfuzz.NewRoutes()
	if err != nil {
		return err
	}
	bits, err := packetfuzz.Memory(t.live["nat_bits"])
	if err != nil {
		return err
	}
	t.model = model.New(&t.config, model.Host{
		Routes: routes, Devices: t.devices, Sets: len(t.memory.flows) / 128, NATBits: bits, Wall: wallOffset, MSS: segmentSizes,
	}, &t.features)
	t.start = 1 << 41
	t.generator = generate.New(t.model, t.devices)
	return t.putKeys(0)
}

// Close closes everything.
func (t *Target) Close() error {
	var errs []error
	if t.plane != nil {
		errs = append(errs, t.plane.Detach())
	}
	if t.object != nil {
		t.object.Close()
	}
	if t.net != nil {
		errs = append(errs, t.net.Close())
	}
	return errors.Join(errs...)
}

// Name implements packetfuzz.Target.
func (t *Target) Name() string { return "balancer" }

// Hooks implements packetfuzz.Target.
func (t *Target) Hooks() []string { return []string{"eth0", "eth1"} }

// MaxFrame implements packetfuzz.Target.
func (t *Target) MaxFrame() int { return 3400 }

// ChangeCost implements packetfuzz.Target.
func (t *Target) ChangeCost() int { return 4 }

// Coverage implements packetfuzz.Target.
func (t *Target) Coverage() []byte { return t.object.Coverage }

// Features implements packetfuzz.Target.
func (t *Target) Features() *packetfuzz.Features { return &t.features }

// Blocks implements packetfuzz.Target.
func (t *Target) Blocks() []packetfuzz.Block { return t.object.Blocks }

// Outcomes implements packetfuzz.Target.
func (t *Target) Outcomes() map[string]uint64 { return t.outcomes }

// caseTime is the time between the starts of two cases: a whole number of ticks of every
// clock, and longer than any client state lasts.
const caseTime = 1 << 40

// firstRandom is the random number at the beginning of a case.
const firstRandom = 1

// Reset implements packetfuzz.Target.
func (t *Target) Reset() error {
	if err := t.undoChanges(); err != nil {
		return err
	}
	m := t.model
	if t.start += caseTime; t.start >= 1<<58 {
		t.start = 1 << 41
		clear(t.memory.guardClients)
		clear(t.memory.guardBuckets)
	}
	t.object.Control.Nanoseconds, t.object.Control.Random = t.start, firstRandom
	t.object.Control.Jiffies++
	if len(m.Flows)+len(m.Clients) > 0 {
		clear(t.memory.flows)
		clear(t.memory.recent)
	}
	if m.Translated {
		clear(t.memory.back)
	}
	for id := range m.Connections {
		binary.NativeEndian.PutUint64(t.memory.connections[8*id:], 0)
	}
	t.resetLimits()
	if err := errors.Join(t.resetFragments(), t.resetProtection()); err != nil {
		return err
	}
	if t.unsure {
		clear(t.memory.flows)
		clear(t.memory.recent)
		clear(t.memory.back)
		clear(t.memory.connections)
		clear(t.memory.guardClients)
		clear(t.memory.guardBuckets)
		clear(t.memory.sources)
		clear(t.memory.events)
		t.unsure = false
	}
	m.Begin(t.start, firstRandom)
	m.Jiffies = t.object.Control.Jiffies
	t.drops.Begin()
	t.memory.orphans.Skip()
	t.generator.Reset()
	return t.resetTurns()
}

func (t *Target) resetLimits() {
	m := t.model
	for k := range m.Each {
		set := hashes.GuardSet(k.Frontend, &k.Addr)
		clear(t.memory.guardClients[64*set : 64*set+64])
	}
	for id, b := range m.All {
		clear(t.memory.guardBuckets[128*id : 128*id+128])
		if b.OpensCredit|b.PacketsCredit != 0 {
			clear(t.memory.guardCredit[8*id : 8*id+8])
		}
	}
}

func (t *Target) resetFragments() error {
	for k := range t.model.Fragments {
		if err := t.object.Maps["fragments"].Delete(k.Bytes()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// resetTurns restores the turns of rr and wrr.
func (t *Target) resetTurns() error {
	for _, f := range t.config.Frontends {
		if !f.Turned {
			continue
		}
		f.Turn, f.Turned = programmed.U32(f.Entry, t.reader.Frontend.At("turn")), false
		if err := t.live["frontends"].Put(f.Key, f.Entry); err != nil {
			return err
		}
	}
	return nil
}

// Do implements packetfuzz.Target.
func (t *Target) Do(s *packetfuzz.Step) error {
	switch s.Kind {
	case packetfuzz.Wait:
		t.model.Ns += s.Arg % (1_000_000_000_000) // no case lasts longer than its time
		if t.model.Ns-t.start > caseTime-1<<36 {
			t.model.Ns = t.start + caseTime - 1<<36
		}
		t.object.Control.Nanoseconds = t.model.Ns
		t.object.Control.Jiffies += uint64(s.Ticks) + 1
		t.model.Jiffies = t.object.Control.Jiffies
		return nil
	case packetfuzz.Change:
		return t.change(s.Arg)
	}
	hook := int(s.Hook) % len(t.devices)
	t.object.Control.Redirect = 0
	binary.NativeEndian.PutUint32(t.context[hook][4:], uint32(len(s.Frame))) // data_end
	verdict, out, err := t.runner.Run(t.program, s.Frame, t.context[hook])
	if err != nil {
		return err
	}
	return t.judge(s.Frame, &t.devices[hook], verdict, out)
}

// judge compares what the programs did with the model's prediction.
func (t *Target) judge(frame []byte, d *model.Device, verdict int32, out []byte) (err error) {
	defer func() { t.unsure = t.unsure || err != nil }()
	m := t.model
	want := m.Packet(frame, d)
	t.outcomes[verdictNames[verdict&7]]++
	c := t.object.Control
	switch {
	case verdict != want:
		return packetfuzz.Violated("%s, not %s; dropped in this case %v, not %v\n in  %x\n out %x",
			verdictNames[verdict&7], verdictNames[want&7], t.drops.Moved(), m.Drops, frame, out)
	case verdict == model.Drop:
		return nil
	case verdict == model.Redirect && (c.Redirect != packetfuzz.RedirectMap || c.Ifindex != m.Egress):
		return packetfuzz.Violated("redirected to interface %d, not %d\n in  %x", c.Ifindex, m.Egress, frame)
	}
	if err := m.Compare(out); err != nil {
		return packetfuzz.Violated("%s: %v\n in  %x", verdictNames[verdict&7], err, frame)
	}
	t.generator.Came(frame, out, verdict)
	if verdict == model.Tx {
		return t.checkAnswer(frame, out)
	}
	return nil
}

var verdictNames = [8]string{"aborted", "drop", "pass", "tx", "redirect", "?5", "?6", "?7"}

// Finish implements packetfuzz.Target: the state must be the same.
func (t *Target) Finish() (err error) {
	defer func() { t.unsure = t.unsure || err != nil }()
	if err := t.compareFlows(); err != nil {
		return err
	}
	if n, err := t.memory.orphans.Records(); err != nil || n != t.model.Orphans {
		return packetfuzz.Violated("%d fragments went to user space, not %d (%v)", n, t.model.Orphans, err)
	}
	if err := t.drops.Compare(t.model.Drops); err != nil {
		return err
	}
	for name, n := range t.model.Drops {
		t.outcomes[name] += n
	}
	return t.compareProtection()
}

// compareFlows compares the flow table.
func (t *Target) compareFlows() error {
	m := t.model
	used := 0
	for at := 0; at < len(t.memory.flows); at += 16 {
		if binary.NativeEndian.Uint64(t.memory.flows[at:])&^1 != 0 {
			used++
		}
	}
	for _, f := range m.Flows {
		if err := t.compareFlow(f); err != nil {
			return err
		}
	}
	for _, f := range m.Clients {
		if err := t.compareFlow(f); err != nil {
			return err
		}
	}
	if want := len(m.Flows) + len(m.Clients); used != want {
		return packetfuzz.Violated("%d entries in the flow table, not %d", used, want)
	}
	for id, want := range m.Connections {
		if is := binary.NativeEndian.Uint64(t.memory.connections[8*id:]); is != uint64(want.On<<32+want.Ended) {
			return packetfuzz.Violated("server %d has connections %#x, not %+v", id, is, want)
		}
	}
	return nil
}

func (t *Target) compareFlow(f *model.Flow) error {
	at := 16 * f.Way
	if is := binary.NativeEndian.Uint64(t.memory.flows[at:]) &^ 1; is != f.Tag {
		return packetfuzz.Violated("at %d the tag is %#x, not that of %+v, among%s", f.Way, is, *f, t.entries())
	}
	want := uint64(f.Server) | uint64(f.Generation)<<20 | uint64(f.State)<<28 | uint64(f.Expires)<<32
	if f.Nat {
		want |= 1 << 27
	}
	if is := binary.NativeEndian.Uint64(t.memory.flows[at+8:]); is != want {
		return packetfuzz.Violated("the entry of %+v is %#x, not %#x", *f, is, want)
	}
	return t.compareData(f, t.memory.data[64*f.Way:])
}

// entries lists the flow table, for messages.
func (t *Target) entries() (text string) {
	for at := 0; at < len(t.memory.flows); at += 16 {
		if tag := binary.NativeEndian.Uint64(t.memory.flows[at:]); tag != 0 {
			text += fmt.Sprintf(" %d: %#x %#x", at/16, tag, binary.NativeEndian.Uint64(t.memory.flows[at+8:]))
		}
	}
	return text
}

// compareData compares a flow's entry in the second table.
func (t *Target) compareData(f *model.Flow, b []byte) error {
	if !f.Described {
		return nil
	}
	l := &t.memory.dataLayout
	port := func(name string) uint16 { return binary.BigEndian.Uint16(b[l.At(name):]) }
	is := wire.Tuple{
		Src: wire.Addr(b[l.At("client"):][:16]), Dst: wire.Addr(b[l.At("vip"):][:16]),
		SPort: port("client_port"), DPort: port("vip_port"), Proto: byte(programmed.U32(b, l.At("egress")) >> 24),
	}
	if f.Proxied != nil {
		is.Proto ^= flowProxied
	}
	if nat := port("nat_port"); is != f.Tuple || nat != f.NatPort {
		return packetfuzz.Violated("the table describes %+v as %+v with port %d, not %d", f.Tuple, is, nat, f.NatPort)
	}
	numbers := b[l.At("macs"):]
	if seq, ack := programmed.U32(numbers, 0), programmed.U32(numbers, 4); !f.Nat && (seq != f.Seq || ack != f.Ack) {
		return packetfuzz.Violated("the table has the numbers %d and %d of %+v, not %d and %d", seq, ack, f.Tuple, f.Seq, f.Ack)
	}
	return t.compareProxied(f)
}

// Next implements packetfuzz.Target.
func (t *Target) Next(rng *rand.Rand, s *packetfuzz.Step) {
	switch n := rng.IntN(2000); {
	case n < 80:
		s.Kind, s.Arg, s.Ticks = packetfuzz.Wait, packetfuzz.RandomWait(rng), uint32(rng.IntN(3))
	case n < 88 && !t.noPressure:
		s.Kind, s.Arg = packetfuzz.Change, rng.Uint64()&(1<<60-1)&^0xffff|uint64(t.generator.One(rng))
	case n < 92:
		s.Kind, s.Arg = packetfuzz.Change, rng.Uint64()&^0xffff|uint64(t.generator.One(rng))
	default:
		s.Kind, s.Hook = packetfuzz.Packet, uint8(rng.IntN(8)/7)
		s.Frame = t.generator.Next(rng, s.Hook, s.Frame[:0])
	}
}
