// Package services fuzzes the programs of bpf/proxy_tc.c: a node's proxy for Services,
// where packets arrive and leave. The real agents (dataplane/proxy and its packet half)
// write their configuration; the model (model.go and the files next to it) predicts what
// happens to each packet. The programs for devices without Ethernet headers cannot be run
// with arbitrary packets; they have the same code.
package services

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Target is the programs with their agents and their model.
type Target struct {
	net      *packetfuzz.Net
	agent    *agent
	object   *packetfuzz.Object
	reader   *reader
	hooks    []hook
	names    []string
	programs []int
	context  [][]byte
	runner   packetfuzz.Runner
	counters *packetfuzz.Counters

	model       model
	config      config
	features    packetfuzz.Features
	flows       *packetfuzz.Hash
	fragments   *packetfuzz.Hash
	affinities  *packetfuzz.Hash
	connections []byte
	layouts     struct{ flow, tuple, fragment, client, affinity packetfuzz.Layout }
	world       []proxy.Frontend
	entries     []proxy.Frontend // as they are now
	start       uint64
	changed     bool
	left        bool // the state still has to be cleared
	thorough    bool // compare everything, even if no state is expected
	cases       uint64
	generator   generator
	outcomes    map[string]uint64
}

// New opens the agents and loads the programs of an object file.
func New(object string) (*Target, error) {
	t := &Target{outcomes: map[string]uint64{}}
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
	var live map[string]*ebpf.Map
	if t.object, live, err = load(object); err != nil {
		return err
	}
	if t.reader, err = newReader(t.object, live); err != nil {
		return err
	}
	c := &t.config
	if err := t.reader.devices(c); err != nil {
		return err
	}
	if c.maskFirst, err = setting(t.object, "mask_first"); err != nil {
		return err
	}
	if c.maskCount, err = setting(t.object, "mask_count"); err != nil {
		return err
	}
	c.nodes = map[wire.Addr]bool{}
	for _, of := range nodes {
		for _, n := range of {
			c.nodes[addr(n)] = true
		}
	}
	if err := t.maps(); err != nil {
		return err
	}
	if err := t.hook(); err != nil {
		return err
	}
	routes, err := packetfuzz.NewRoutes()
	if err != nil {
		return err
	}
	t.model = model{
		config: &t.config, routes: routes, saw: &t.features, counters: map[string]uint64{}, flows: map[wire.Tuple]*half{},
		affinities: map[clientKey]*affinity{}, fragments: map[fragmentKey]*half{}, connections: map[uint32]uint64{},
	}
	t.start = 1 << 41
	return nil
}

// maps finds the programs' state.
func (t *Target) maps() (err error) {
	t.flows = packetfuzz.NewHash(t.object.Maps["packet_flows"])
	t.fragments = packetfuzz.NewHash(t.object.Maps["packet_fragments"])
	t.affinities = packetfuzz.NewHash(t.object.Maps["affinities"])
	for name, l := range map[string]*packetfuzz.Layout{
		"packet_flow": &t.layouts.flow, "tuple": &t.layouts.tuple, "packet_fragment_key": &t.layouts.fragment,
		"affinity_key": &t.layouts.client, "affinity": &t.layouts.affinity,
	} {
		if *l, err = packetfuzz.LayoutOf(t.object.Spec.Types, name); err != nil {
			return err
		}
	}
	if t.connections, err = packetfuzz.Memory(t.object.Maps["connections"]); err != nil {
		return err
	}
	t.counters, err = packetfuzz.NewCounters(t.object, "packet_counters", "packet_counter", "PACKET_COUNTER_")
	return err
}

// hook lists the hooks where frames arrive.
func (t *Target) hook() error {
	nics, mtus, err := packetfuzz.Devices(macs)
	if err != nil {
		return err
	}
	t.config.mtus = mtus
	for _, h := range []hook{
		fromNetwork: {name: "from_outside@eth0", device: "eth0", program: "from_outside", place: outside},
		fromPod:     {name: "from_inside@pod0", device: "pod0", program: "from_inside", place: inside},
		fromPort:    {name: "from_inside@pb0", device: "pb0", program: "from_inside", place: inside},
		toNetwork:   {name: "leaving@eth0", device: "eth0", program: "leaving", place: leaving},
		forwarded:   {name: "leaving@eth0,pod0", device: "eth0", program: "leaving", place: leaving, ingress: nics["pod0"]},
		toPod:       {name: "leaving@pod0", device: "pod0", program: "leaving", place: leaving},
		onToPod:     {name: "leaving@pod0,eth0", device: "pod0", program: "leaving", place: leaving, ingress: nics["eth0"]},
		toBridge:    {name: "leaving@pb1,pb0", device: "pb1", program: "leaving", place: leaving, ingress: nics["pb0"]},
	} {
		h.ifindex = nics[h.device]
		t.hooks = append(t.hooks, h)
		t.names = append(t.names, h.name)
		p := t.object.Programs[h.program]
		if p == nil {
			return fmt.Errorf("no program %s", h.program)
		}
		t.programs = append(t.programs, p.FD())
		t.context = append(t.context, packetfuzz.SKBContext(h.ifindex, h.ingress))
	}
	return nil
}

// Close closes everything.
func (t *Target) Close() error {
	var errs []error
	if t.agent != nil {
		errs = t.agent.close()
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
func (t *Target) Name() string { return "services" }

// Hooks implements packetfuzz.Target.
func (t *Target) Hooks() []string { return t.names }

// MaxFrame implements packetfuzz.Target.
func (t *Target) MaxFrame() int { return 3000 }

// ChangeCost implements packetfuzz.Target.
func (t *Target) ChangeCost() int { return 1 }

// Coverage implements packetfuzz.Target.
func (t *Target) Coverage() []byte { return t.object.Coverage }

// Features implements packetfuzz.Target.
func (t *Target) Features() *packetfuzz.Features { return &t.features }

// Blocks implements packetfuzz.Target.
func (t *Target) Blocks() []packetfuzz.Block { return t.object.Blocks }

// Outcomes implements packetfuzz.Target.
func (t *Target) Outcomes() map[string]uint64 { return t.outcomes }

// caseTime is the time between cases: no state of one is left at the next.
const caseTime = 1 << 50

// Reset implements packetfuzz.Target.
func (t *Target) Reset() error {
	if t.changed {
		t.entries = append(t.entries[:0], t.world...)
		if err := t.configure(t.world); err != nil {
			return err
		}
		t.changed = false
	}
	m := &t.model
	if t.start += caseTime; t.start >= 1<<61 {
		t.start = 1 << 41
	}
	m.ns, m.random = t.start, uint32(1)
	c := t.object.Control
	c.Nanoseconds, c.Random = m.ns, m.random
	if t.left {
		for _, h := range []*packetfuzz.Hash{t.flows, t.fragments, t.affinities} {
			if _, err := h.Drain(); err != nil {
				return err
			}
		}
	}
	t.left = true
	clear(m.flows)
	clear(m.fragments)
	clear(m.affinities)
	clear(m.connections)
	clear(m.counters)
	clear(t.connections)
	t.generator.reset()
	t.counters.Begin()
	return nil
}

// Do implements packetfuzz.Target.
func (t *Target) Do(s *packetfuzz.Step) error {
	m := &t.model
	switch s.Kind {
	case packetfuzz.Wait:
		m.ns = min(m.ns+s.Arg%200_000_000_000_000, t.start+caseTime-1)
		t.object.Control.Nanoseconds = m.ns
		return nil
	case packetfuzz.Change:
		return t.change(s.Arg)
	}
	if !packetfuzz.CanRun(s.Frame) {
		return nil
	}
	at := int(s.Hook) % len(t.hooks)
	t.object.Control.Redirect = 0
	verdict, out, err := t.runner.Run(t.programs[at], s.Frame, t.context[at])
	if err != nil {
		return err
	}
	err = t.judge(s.Frame, &t.hooks[at], verdict, out)
	t.thorough = t.thorough || err != nil
	return err
}

// judge compares what a program did with the model's prediction.
func (t *Target) judge(frame []byte, h *hook, verdict int32, out []byte) error {
	m := &t.model
	want := m.packet(frame, h)
	c := t.object.Control
	if verdict != want {
		return packetfuzz.Violated("%s: %s, not %s; counted in this case %v, not %v\n in  %x\n out %x",
			h.name, packetfuzz.VerdictName(verdict), packetfuzz.VerdictName(want), t.counters.Moved(), m.counters, frame, out)
	}
	if c.Random != m.random {
		return packetfuzz.Violated("%s: not as many random numbers as the model takes\n in  %x", h.name, frame)
	}
	t.generator.came(frame)
	if verdict == packetfuzz.ActShot {
		return nil
	}
	if verdict == packetfuzz.ActRedirect {
		got := redirection{helper: c.Redirect, ifindex: c.Ifindex, flags: c.Flags}
		if c.Redirect == packetfuzz.RedirectNeighbor {
			got.family, got.to = c.Family, c.Neighbor
		}
		if got != m.redirect {
			return packetfuzz.Violated("%s: redirected to %+v, not to %+v\n in  %x", h.name, got, m.redirect, frame)
		}
	}
	if !m.changed {
		m.expected.Begin(frame)
	}
	if err := m.expected.Compare(out); err != nil {
		return packetfuzz.Violated("%s: %s: %v\n in  %x", h.name, packetfuzz.VerdictName(verdict), err, frame)
	}
	if m.changed {
		t.generator.came(out)
	}
	return nil
}

// Finish implements packetfuzz.Target.
func (t *Target) Finish() error {
	err := t.compare()
	if err == nil {
		err = t.counters.Compare(t.model.counters)
	}
	for what, n := range t.model.counters {
		t.outcomes[what] += n
	}
	t.thorough = t.thorough || err != nil
	return err
}

// compare compares the state.
func (t *Target) compare() error {
	m := &t.model
	t.cases++
	all := t.thorough || t.cases%32 == 0
	for id, want := range m.connections {
		if is := binary.NativeEndian.Uint64(t.connections[8*id:]); is != want {
			return packetfuzz.Violated("service %d has %d connections, not %d", id, is, want)
		}
	}
	for _, table := range []struct {
		name string
		hash *packetfuzz.Hash
		want int
		same func(key, value []byte) error
	}{
		{"flows", t.flows, len(m.flows), t.compareFlow},
		{"fragments", t.fragments, len(m.fragments), t.compareFragment},
		{"affinities", t.affinities, len(m.affinities), t.compareAffinity},
	} {
		if table.want == 0 && !all { // a system call costs as much as several packets
			continue
		}
		n, err := table.hash.Drain()
		if err != nil {
			return err
		}
		for i := range n {
			if err := table.same(table.hash.Entry(i)); err != nil {
				return err
			}
		}
		if n != table.want {
			return packetfuzz.Violated("%d %s are remembered, not %d", n, table.name, table.want)
		}
	}
	t.left = false
	return nil
}

func (t *Target) tupleAt(b []byte) wire.Tuple {
	l := &t.layouts.tuple
	return wire.Tuple{
		Src: wire.Addr(b[l.At("src"):][:16]), Dst: wire.Addr(b[l.At("dst"):][:16]),
		SPort: binary.BigEndian.Uint16(b[l.At("sport"):]), DPort: binary.BigEndian.Uint16(b[l.At("dport"):]), Proto: b[l.At("proto")],
	}
}

func (t *Target) halfAt(b []byte) half {
	l := &t.layouts.flow
	h := half{
		to: t.tupleAt(b), kind: b[l.At("kind")], fromInside: b[l.At("from_inside")] != 0, state: b[l.At("state")], attempt: b[l.At("opened")],
		seen: binary.NativeEndian.Uint32(b[l.At("seen"):]),
	}
	h.to.Proto = 0
	return h
}

func (t *Target) compareFlow(key, value []byte) error {
	k, is := t.tupleAt(key), t.halfAt(value)
	want := t.model.flows[k]
	if want == nil {
		return packetfuzz.Violated("a flow is remembered that should not: %+v: %+v", k, is)
	}
	if is != *want {
		return packetfuzz.Violated("flow %+v is\n%+v, not\n%+v", k, is, *want)
	}
	return nil
}

func (t *Target) compareFragment(key, value []byte) error {
	l := &t.layouts.fragment
	k := fragmentKey{
		wire.Addr(key[l.At("src"):][:16]), wire.Addr(key[l.At("dst"):][:16]), binary.NativeEndian.Uint32(key[l.At("id"):]),
		key[l.At("proto")], key[l.At("leaving")] != 0,
	}
	is, want := t.halfAt(value), t.model.fragments[k]
	if want == nil {
		return packetfuzz.Violated("a fragment is remembered that should not: %+v: %+v", k, is)
	}
	if is.to.SPort, is.to.DPort = want.to.SPort, want.to.DPort; is != *want {
		return packetfuzz.Violated("fragment %+v is\n%+v, not\n%+v", k, is, *want)
	}
	return nil
}

func (t *Target) compareAffinity(key, value []byte) error {
	id := binary.NativeEndian.Uint32(key[t.layouts.client.At("id"):])
	client := wire.Addr(key[t.layouts.client.At("client"):][:16])
	l := &t.layouts.affinity
	is := affinity{
		wire.Endpoint{Addr: wire.Addr(value[l.At("addr"):][:16]), Port: binary.BigEndian.Uint16(value[l.At("port"):])},
		binary.NativeEndian.Uint64(value[l.At("used"):]),
	}
	for k, want := range t.model.affinities {
		if k.client == client && k.id == id {
			if *want != is {
				return packetfuzz.Violated("affinity of %v is %+v, not %+v", k, is, *want)
			}
			return nil
		}
	}
	return packetfuzz.Violated("an affinity is remembered that should not: %v to service %d: %+v", client, id, is)
}

// change has the agent change a frontend, selected by a number.
func (t *Target) change(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 9))
	if !t.changed {
		t.entries = append(t.entries[:0], t.world...)
	}
	t.changed = true
	t.entries = proxied.Change(rng, t.entries, int(number&0xffff),
		func(f *proxy.Frontend) proxy.Choice { return choice(rng, f.Addr.Is6(), f.Port) },
		func() proxy.Frontend { return frontendOf(rng, rng.IntN(2) == 0, rng.IntN(12)) })
	return t.configure(t.entries)
}
