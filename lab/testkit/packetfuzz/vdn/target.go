// Package vdn fuzzes the programs of bpf/vdn.c: at the devices of pods, and at the uplink
// of a node that is a gateway. The real agent (vdn/enforce/kernel) writes their
// configuration; the model (model.go) predicts what happens to each packet.
package vdn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/ownns"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	plan "github.com/fairlead/fairlead/vdn"
)

// hook is a program at a device.
type hook struct {
	name    string
	pod     *pod // nil at the node's devices
	way     int  // at a pod's device
	leaves  bool // at the uplink
	gateway bool // the same
	port    bool // at the node's end of a veth
	program int
	context []byte
}

// Target is the programs with their agent and their model.
type Target struct {
	node     *node
	pods     []*pod
	live     []map[string]*ebpf.Map
	objects  []*packetfuzz.Object
	hooks    []hook
	names    []string
	runner   packetfuzz.Runner
	model    model
	features packetfuzz.Features

	buckets, counts [][]byte // by pod
	refused         *packetfuzz.Hash
	bucket, count   packetfuzz.Layout
	refusedKey      packetfuzz.Layout
	reasons         map[uint32]string
	podReasons      int
	ifindex         uint32
	cookie          uint64 // of this thread's namespace
	sender          *pod   // the pod that this namespace stands for
	gateway         *packetfuzz.Object

	world     []plan.Slice
	revision  uint64
	start     uint64
	changed   bool
	thorough  bool
	cases     uint64
	generator generator
	outcomes  map[string]uint64
}

// New opens the agent and loads the programs of an object file.
func New(object string) (*Target, error) {
	t := &Target{outcomes: map[string]uint64{}, pods: somePods()}
	if err := t.open(object); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Target) open(object string) (err error) {
	if t.node, err = openNode(t.pods); err != nil {
		return err
	}
	t.model = model{refused: map[refusedKey]uint64{}, slices: slicesOf(rand.New(rand.NewPCG(1, 1)))}
	for _, p := range t.pods {
		p.counters = [2]map[string]uint64{{}, {}}
	}
	if err := t.configure(); err != nil {
		return err
	}
	if err := t.load(object); err != nil {
		return err
	}
	o := t.gateway
	for name, l := range map[string]*packetfuzz.Layout{"vdn_bucket": &t.bucket, "vdn_pod_count": &t.count, "vdn_refused_key": &t.refusedKey} {
		if *l, err = packetfuzz.LayoutOf(o.Spec.Types, name); err != nil {
			return err
		}
	}
	if err := t.readReasons(); err != nil {
		return err
	}
	for _, o := range t.objects {
		for name, to := range map[string]*[][]byte{"pod_buckets": &t.buckets, "pod_counts": &t.counts} {
			b, err := packetfuzz.Memory(o.Maps[name])
			if err != nil {
				return err
			}
			*to = append(*to, b)
		}
	}
	t.refused = packetfuzz.NewHash(t.gateway.Maps["vdn_refused"])
	t.start, t.runner.KeepContext = 1<<41, true
	if t.cookie, err = ownns.Cookie(); err != nil {
		return err
	}
	return t.hook()
}

func (t *Target) readReasons() error {
	names, err := packetfuzz.EnumOf(t.gateway.Spec.Types, "vdn_reason")
	t.reasons = map[uint32]string{}
	for n, name := range names {
		if name == "VDN_REASONS" {
			t.podReasons = int(n) // earlier ones are counted per pod
			continue
		}
		t.reasons[uint32(n)] = strings.TrimPrefix(name, "VDN_REASON_")
	}
	return err
}

// hook lists the hooks where frames arrive.
func (t *Target) hook() error {
	nic, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	t.ifindex = uint32(nic.Index)
	add := func(h hook, o *packetfuzz.Object, program string) error {
		p := o.Programs[program]
		if p == nil {
			return fmt.Errorf("no program %s", program)
		}
		h.program, h.context = p.FD(), packetfuzz.SKBContext(t.ifindex, 0)
		t.hooks, t.names = append(t.hooks, h), append(t.names, h.name)
		return nil
	}
	for i, p := range t.pods {
		err = errors.Join(err,
			add(hook{name: "pod_out@" + p.name, pod: p, way: sends}, t.objects[i], "pod_out"),
			add(hook{name: "pod_in@" + p.name, pod: p, way: receives}, t.objects[i], "pod_in"))
	}
	return errors.Join(err,
		add(hook{name: "uplink_out", leaves: true, gateway: true}, t.gateway, "uplink_out"),
		add(hook{name: "uplink_in", gateway: true}, t.gateway, "uplink_in"),
		add(hook{name: "uplink_in@node"}, t.objects[0], "uplink_in"),
		add(hook{name: "port_in", port: true}, t.objects[0], "port_in"))
}

// takeRates reads the rates that the agent has set for each pod, which must be the
// slices'.
func (t *Target) takeRates() error {
	for i, p := range t.pods {
		if p.rate = 0; t.model.slice(p.slice) != nil {
			p.rate = uint64(t.model.slice(p.slice).MaxRatePerHost)
		}
		if t.live == nil {
			continue
		}
		for way := range uint32(2) {
			b, err := t.live[i]["pod_buckets"].LookupBytes(way)
			if err != nil {
				return err
			}
			rate := binary.NativeEndian.Uint64(b[t.bucket.At("rate"):])
			if rate != p.rate {
				return packetfuzz.Violated("the agent limits pod %s to %d bit/s, not to %d", p.name, rate, p.rate)
			}
			binary.NativeEndian.PutUint64(t.buckets[i][int(way)*t.bucket.Size+t.bucket.At("rate"):], rate)
		}
	}
	return nil
}

// Close closes everything.
func (t *Target) Close() error {
	var errs []error
	if t.node != nil {
		errs = t.node.close()
	}
	for _, o := range t.objects {
		o.Close()
	}
	if t.gateway != nil {
		t.gateway.Close()
	}
	return errors.Join(errs...)
}

// Name implements packetfuzz.Target.
func (t *Target) Name() string { return "vdn" }

// Hooks implements packetfuzz.Target.
func (t *Target) Hooks() []string { return t.names }

// MaxFrame implements packetfuzz.Target.
func (t *Target) MaxFrame() int { return 2000 }

// ChangeCost implements packetfuzz.Target. The agent reads and changes the devices of all pods.
func (t *Target) ChangeCost() int { return 16 }

// Coverage implements packetfuzz.Target.
func (t *Target) Coverage() []byte { return t.gateway.Coverage }

// Features implements packetfuzz.Target.
func (t *Target) Features() *packetfuzz.Features { return &t.features }

// Blocks implements packetfuzz.Target.
func (t *Target) Blocks() []packetfuzz.Block { return t.gateway.Blocks }

// Outcomes implements packetfuzz.Target.
func (t *Target) Outcomes() map[string]uint64 { return t.outcomes }

// caseTime is the time between cases.
const caseTime = 1 << 42

// Reset implements packetfuzz.Target.
func (t *Target) Reset() error {
	m := &t.model
	if t.changed {
		m.slices = t.world
		if err := t.configure(); err != nil {
			return err
		}
		t.changed = false
	}
	if t.start += caseTime; t.start >= 1<<60 {
		t.start = 1 << 41
	}
	m.ns = t.start
	t.gateway.Control.Nanoseconds = m.ns
	for i, p := range t.pods {
		for way := range 2 {
			clear(t.buckets[i][way*t.bucket.Size+t.bucket.At("until"):][:8])
			p.until[way] = 0
			clear(p.counters[way])
		}
		clear(t.counts[i])
	}
	if t.thorough {
		if _, err := t.refused.Drain(); err != nil {
			return err
		}
	}
	clear(m.refused)
	t.generator.reset(t)
	return nil
}

// Do implements packetfuzz.Target.
func (t *Target) Do(s *packetfuzz.Step) error {
	m := &t.model
	switch s.Kind {
	case packetfuzz.Wait:
		m.ns = min(m.ns+s.Arg%1_000_000_000_000, t.start+caseTime-1)
		t.gateway.Control.Nanoseconds = m.ns
		return nil
	case packetfuzz.Change:
		return t.change(s.Arg)
	}
	if !packetfuzz.CanRun(s.Frame) {
		return nil
	}
	h := &t.hooks[int(s.Hook)%len(t.hooks)]
	f, err := t.frame(s)
	if err != nil {
		return err
	}
	packetfuzz.SetPriority(h.context, f.priority)
	t.gateway.Control.TCIndex = f.tcIndex
	verdict, out, err := t.runner.Run(h.program, s.Frame, h.context)
	if err != nil {
		return err
	}
	err = t.judge(&f, h, verdict, out)
	t.thorough = t.thorough || err != nil
	return err
}

// frame decodes a step's argument: the priority, the owner of its socket and its
// tc_index.
func (t *Target) frame(s *packetfuzz.Step) (f frame, err error) {
	f = frame{bytes: s.Frame, priority: uint32(s.Arg), tcIndex: []uint32{0, stamp, stamp ^ 1, 7}[s.Arg>>34&3]}
	if n := int(s.Arg >> 32 & 3); n > 0 {
		f.sender = t.pods[(n-1)%len(t.pods)]
	}
	if f.sender == t.sender {
		return f, nil
	}
	// The sockets of test runs are this thread's: its namespace stands for the pod's.
	t.sender = f.sender
	namespaces := t.gateway.Maps["vdn_namespaces"]
	if f.sender == nil {
		return f, namespaces.Delete(t.cookie)
	}
	return f, namespaces.Put(t.cookie, [2]uint16{f.sender.slice, 0})
}

// judge compares what a program did with the model's prediction.
func (t *Target) judge(f *frame, h *hook, verdict int32, out []byte) error {
	m := &t.model
	var want int32
	switch {
	case h.pod != nil:
		want = m.atPod(h.pod, h.way, f)
	case h.port:
		want = m.atPort(f)
	default:
		want = m.atUplink(f, h.leaves, h.gateway)
	}
	t.outcomes[packetfuzz.VerdictName(verdict)]++
	if verdict != want {
		return packetfuzz.Violated("%s: %s, not %s; dropped in this case %v\n in  %x",
			h.name, packetfuzz.VerdictName(verdict), packetfuzz.VerdictName(want), t.dropped(h.pod), f.bytes)
	}
	t.generator.came(f.bytes)
	if verdict == packetfuzz.ActShot {
		return nil
	}
	if p := packetfuzz.Priority(t.runner.Context()); p != m.priority {
		return packetfuzz.Violated("%s: the priority is %#x, not %#x\n in  %x", h.name, p, m.priority, f.bytes)
	}
	if is := t.gateway.Control.TCIndex; is != m.tcIndex {
		return packetfuzz.Violated("%s: the tc_index is %#x, not %#x\n in  %x", h.name, is, m.tcIndex, f.bytes)
	}
	if string(out) != string(f.bytes) {
		return packetfuzz.Violated("%s: the frame is changed\n in  %x\n out %x", h.name, f.bytes, out)
	}
	return nil
}

// dropped returns the model's counters, for messages.
func (t *Target) dropped(p *pod) any {
	if p == nil {
		return t.model.refused
	}
	return p.counters
}

// Finish implements packetfuzz.Target.
func (t *Target) Finish() error {
	err := t.compare()
	t.thorough = t.thorough || err != nil
	return err
}

func (t *Target) compare() error {
	for i, p := range t.pods {
		for way := range 2 {
			b := t.buckets[i][way*t.bucket.Size:]
			if until := binary.NativeEndian.Uint64(b[t.bucket.At("until"):]); until != p.until[way] {
				return packetfuzz.Violated("pod %s, way %d: what has passed lasts until %d, not %d", p.name, way, until, p.until[way])
			}
			counts := t.counts[i][way*t.count.Size:]
			if n := binary.NativeEndian.Uint64(counts[t.count.At("bytes"):]); n != p.counters[way]["bytes"] {
				return packetfuzz.Violated("pod %s, way %d: %d bytes, not %d", p.name, way, n, p.counters[way]["bytes"])
			}
			for number := range t.podReasons {
				why := t.reasons[uint32(number)]
				n, want := binary.NativeEndian.Uint64(counts[t.count.At("drops")+8*number:]), p.counters[way][why]
				if n != want {
					return packetfuzz.Violated("pod %s, way %d: %d dropped as %s, not %d", p.name, way, n, why, want)
				}
				if want > 0 {
					t.outcomes[why] += want
				}
			}
		}
	}
	return t.compareRefused()
}

func (t *Target) compareRefused() error {
	m := &t.model
	if t.cases++; len(m.refused) == 0 && !t.thorough && t.cases%32 != 0 {
		return nil
	}
	n, err := t.refused.Drain()
	if err != nil {
		return err
	}
	for i := range n {
		key, value := t.refused.Entry(i)
		l := &t.refusedKey
		why := t.reasons[binary.NativeEndian.Uint32(key[l.At("reason"):])]
		k := refusedKey{binary.NativeEndian.Uint16(key[l.At("slice"):]), why}
		at, count := binary.NativeEndian.Uint32(key[l.At("ifindex"):]), binary.NativeEndian.Uint64(value)
		if at != t.ifindex || count != m.refused[k] {
			return packetfuzz.Violated("%+v is refused %d times at device %d, not %d times at %d", k, count, at, m.refused[k], t.ifindex)
		}
		t.outcomes["uplink "+why] += count
	}
	if n != len(m.refused) {
		return packetfuzz.Violated("%d are refused at the uplink, not %v", n, m.refused)
	}
	return nil
}

// change has the agent enforce other slices, selected by a number.
func (t *Target) change(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 9))
	other := slicesOf(rng)
	t.model.slices = append([]plan.Slice(nil), t.model.slices...)
	i := rng.IntN(len(other))
	t.model.slices[i] = other[i]
	t.changed = true
	return t.configure()
}
