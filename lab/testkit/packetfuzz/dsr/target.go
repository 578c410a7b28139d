// Package dsr fuzzes the programs of bpf/dsr.c, on the node of backends that answer
// their clients directly. The real agent (dataplane/dsr) writes their configuration; the
// model (model.go and the files next to it) predicts what happens to each packet.
package dsr

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Target is the programs with their agent and their model.
type Target struct {
	net      *packetfuzz.Net
	agent    *dsr.Agent
	object   *packetfuzz.Object
	reader   *reader
	hooks    []hook
	names    []string
	programs []int
	context  [][]byte
	runner   packetfuzz.Runner
	counters *packetfuzz.Counters

	model     model
	config    config
	features  packetfuzz.Features
	table     *packetfuzz.Table // flow_table
	set       packetfuzz.Layout
	flow      packetfuzz.Layout
	entries   []dsr.Entry
	world     []dsr.Entry // as in the world
	sources   []dsr.Sources
	balancers [2][]string  // of this world, by family
	senders   []netip.Addr // accepted load balancers; nil means all senders
	start     uint64
	changed   bool
	touched   map[wire.Addr]bool // VIPs whose entries this case has changed
	unsure    bool
	generator generator
	outcomes  map[string]uint64
}

// New opens the agent and loads the programs of an object file.
func New(object string) (*Target, error) {
	t := &Target{outcomes: map[string]uint64{}, touched: map[wire.Addr]bool{}}
	if err := t.open(object); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Target) open(object string) (err error) {
	if t.net, err = newNet(); err != nil {
		return err
	}
	if t.agent, err = openAgent(); err != nil {
		return err
	}
	if err := t.agent.Set(frontendOf(rand.New(rand.NewPCG(1, 1)), false, 0)); err != nil {
		return err
	}
	var live map[string]*ebpf.Map
	if t.object, live, err = load(object); err != nil {
		return err
	}
	if t.reader, err = newReader(t.object, live); err != nil {
		return err
	}
	t.table = packetfuzz.NewTable(t.object.Maps["flow_table"], maxFlows)
	if t.set, err = packetfuzz.LayoutOf(t.object.Spec.Types, "server_flow_set"); err != nil {
		return err
	}
	if t.flow, err = packetfuzz.LayoutOf(t.object.Spec.Types, "server_flow"); err != nil {
		return err
	}
	if t.counters, err = packetfuzz.NewCounters(t.object, "server_counters", "server_counter", "SERVER_COUNTER_"); err != nil {
		return err
	}
	if err := t.hook(); err != nil {
		return err
	}
	routes, err := packetfuzz.NewRoutes()
	if err != nil {
		return err
	}
	m := &t.model
	*m = model{config: &t.config, routes: routes, saw: &t.features, counters: map[string]uint64{}, fragments: map[fragmentKey]*fragment{}}
	m.table = table{sets: make([][8]*flow, len(t.table.Values)/t.set.Size), pool: make([]flow, 0, 8*packetfuzz.MaxSteps)}
	t.start = 1 << 41
	return nil
}

// hook lists the hooks where frames arrive.
func (t *Target) hook() error {
	nics, mtus, err := packetfuzz.Devices(macs)
	if err != nil {
		return err
	}
	t.config.mtus = mtus
	for _, h := range []hook{
		{name: "pod0", program: "to_server", place: pod},
		{name: "eth0", program: "to_host", place: host},
		{name: "pod0", program: "from_server", place: pod},
		{name: "eth0", program: "from_host", place: host},
		{name: "eth0", program: "from_node", place: host},
	} {
		h.ifindex = nics[h.name]
		t.hooks = append(t.hooks, h)
		t.names = append(t.names, h.program)
		t.programs = append(t.programs, t.object.Programs[h.program].FD())
		t.context = append(t.context, packetfuzz.SKBContext(h.ifindex, 0))
	}
	return nil
}

// Close closes everything.
func (t *Target) Close() error {
	var errs []error
	if t.agent != nil {
		errs = append(errs, t.agent.Detach())
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
func (t *Target) Name() string { return "dsr" }

// Hooks implements packetfuzz.Target.
func (t *Target) Hooks() []string { return t.names }

// MaxFrame implements packetfuzz.Target.
func (t *Target) MaxFrame() int { return 3000 }

// ChangeCost implements packetfuzz.Target. The agent reads maps that have room for a million entries.
func (t *Target) ChangeCost() int { return 16 }

// Coverage implements packetfuzz.Target.
func (t *Target) Coverage() []byte { return t.object.Coverage }

// Features implements packetfuzz.Target.
func (t *Target) Features() *packetfuzz.Features { return &t.features }

// Blocks implements packetfuzz.Target.
func (t *Target) Blocks() []packetfuzz.Block { return t.object.Blocks }

// Outcomes implements packetfuzz.Target.
func (t *Target) Outcomes() map[string]uint64 { return t.outcomes }

const caseTime = 1 << 40

// Reset implements packetfuzz.Target.
func (t *Target) Reset() error {
	if t.changed {
		t.entries = append(t.entries[:0], t.world...)
		if err := t.configure(); err != nil {
			return err
		}
		t.changed = false
		clear(t.touched)
	}
	m := &t.model
	if t.start += caseTime; t.start >= 1<<58 {
		t.start = 1 << 41
	}
	m.ns = t.start
	t.object.Control.Nanoseconds = m.ns
	if len(m.table.pool) > 0 || t.unsure {
		if err := t.table.Clear(); err != nil {
			return err
		}
		clear(m.table.sets)
		m.table.pool = m.table.pool[:0]
	}
	for k := range m.fragments {
		if err := t.object.Maps["server_fragments"].Delete(k.bytes()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	clear(m.fragments)
	clear(m.counters)
	t.generator.reset()
	t.counters.Begin()
	t.unsure = false
	return nil
}

// bytes encodes struct fragment_key.
func (k fragmentKey) bytes() []byte {
	b := append(append([]byte(nil), k.src[:]...), k.dst[:]...)
	return append(binary.NativeEndian.AppendUint32(b, k.id), k.proto, 0, 0, 0)
}

// Do implements packetfuzz.Target.
func (t *Target) Do(s *packetfuzz.Step) error {
	switch s.Kind {
	case packetfuzz.Wait:
		t.model.ns = min(t.model.ns+s.Arg%1_000_000_000_000, t.start+caseTime-1<<36)
		t.object.Control.Nanoseconds = t.model.ns
		return nil
	case packetfuzz.Change:
		return t.change(s.Arg)
	}
	if !packetfuzz.CanRun(s.Frame) {
		return nil
	}
	h := &t.hooks[int(s.Hook)%len(t.hooks)]
	t.object.Control.Redirect = 0
	verdict, out, err := t.runner.Run(t.programs[int(s.Hook)%len(t.hooks)], s.Frame, t.context[int(s.Hook)%len(t.hooks)])
	if err != nil {
		return err
	}
	err = t.judge(s.Frame, h, verdict, out)
	t.unsure = t.unsure || err != nil
	return err
}

// judge compares what a program did with the model's prediction.
func (t *Target) judge(frame []byte, h *hook, verdict int32, out []byte) error {
	m := &t.model
	want := m.packet(frame, h)
	t.outcomes[packetfuzz.VerdictName(verdict)]++
	c := t.object.Control
	if verdict != want {
		return packetfuzz.Violated("%s: %s, not %s; counted in this case %v, not %v%s\n in  %x\n out %x",
			h.program, packetfuzz.VerdictName(verdict), packetfuzz.VerdictName(want), t.counters.Moved(), m.counters, t.drift(), frame, out)
	}
	if verdict == packetfuzz.ActShot {
		return nil
	}
	if verdict == packetfuzz.ActRedirect {
		got := wayOut{ifindex: c.Ifindex, family: c.Family}
		if c.Family != 0 {
			got.to = c.Neighbor
		}
		if c.Redirect != packetfuzz.RedirectNeighbor || got != m.way {
			return packetfuzz.Violated("%s: redirected to %+v, not to %+v\n in  %x", h.program, got, m.way, frame)
		}
	}
	if !m.changed {
		m.expected.Begin(m.frame)
	}
	if err := m.expected.Compare(out); err != nil {
		return packetfuzz.Violated("%s: %s: %v\n in  %x", h.program, packetfuzz.VerdictName(verdict), err, frame)
	}
	t.generator.came(frame, out)
	return nil
}

// Finish implements packetfuzz.Target.
func (t *Target) Finish() error {
	err := t.compareTable()
	if err == nil {
		err = t.counters.Compare(t.model.counters)
	}
	for what, n := range t.model.counters {
		t.outcomes[what] += n
	}
	t.unsure = t.unsure || err != nil
	return err
}

// compareTable compares the flow table, place by place.
func (t *Target) compareTable() error {
	if err := t.table.Read(maxFlows); err != nil {
		return err
	}
	for i, set := range t.model.table.sets {
		b := t.table.Values[i*t.set.Size:]
		for way, want := range set {
			tag := binary.NativeEndian.Uint32(b[t.set.At("tag")+4*way:])
			if want == nil && tag == 0 {
				continue
			}
			if want == nil || tag != tableHash(&want.Tuple)|1 {
				return packetfuzz.Violated("set %d, way %d has the tag %#x, not that of %+v", i, way, tag, want)
			}
			is := t.flowAt(b[t.set.At("flow")+64*way:])
			if is.attempt = want.attempt; is.state&flowDoubted != 0 {
				is.attempt = binary.NativeEndian.Uint16(b[t.set.At("opened")+2*way:])
			}
			if is != *want {
				return packetfuzz.Violated("set %d, way %d is %+v, not %+v", i, way, is, *want)
			}
		}
	}
	return nil
}

// flowAt decodes a struct server_flow.
func (t *Target) flowAt(b []byte) flow {
	l := &t.flow
	port := func(name string) uint16 { return binary.BigEndian.Uint16(b[l.At(name):]) }
	address := func(name string) wire.Addr { return wire.Addr(b[l.At(name):][:16]) }
	return flow{
		Tuple: wire.Tuple{Src: address("client"), Dst: address("server"), SPort: port("client_port"), DPort: port("server_port"), Proto: b[l.At("proto")]},
		vip:   wire.Endpoint{Addr: address("vip"), Port: port("vip_port")}, overhead: int(b[l.At("overhead")]),
		seen: binary.NativeEndian.Uint32(b[l.At("seen"):]), method: b[l.At("method")], place: b[l.At("place")], state: b[l.At("state")],
	}
}

// change has the agent change an entry, selected by a number.
func (t *Target) change(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 9))
	if len(t.entries) == 0 {
		return nil
	}
	if !t.changed {
		t.world = append(t.world[:0], t.entries...)
	}
	t.changed = true
	i := int(number&0xffff) % len(t.entries)
	t.touch(&t.entries[i])
	switch rng.IntN(3) {
	case 0:
		t.entries = append(t.entries[:i], t.entries[i+1:]...)
	case 1:
		changeMethod(t.entries, t.entries[i].Key, pick(rng, []service.Method{service.Tunnel, service.DSRNAT}))
	default:
		more := frontendOf(rng, rng.IntN(2) == 0, rng.IntN(8))
		for i := range more {
			t.touch(&more[i])
		}
		t.entries = append(t.entries, more...)
	}
	return t.configure()
}

// changeMethod gives a frontend another forwarding mode, if its backends have its family.
func changeMethod(all []dsr.Entry, k service.Key, method service.Method) {
	for i := range all {
		if e := &all[i]; e.Key == k && e.Method != service.DR && e.Server.Addr().Is4() == e.VIP.Is4() {
			e.Method = method
		}
	}
}
