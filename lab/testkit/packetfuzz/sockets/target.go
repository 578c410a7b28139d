// Package sockets fuzzes the programs of bpf/proxy.c: what sockets on a node connect and
// send to, and which peers they see. The kernel runs such programs only for real sockets,
// so steps use real sockets. The real agent (dataplane/proxy) writes the configuration.
//
// A step's frame is a call, and its hook is the system call.
package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// Target is the programs with their agent and their model.
type Target struct {
	net, pod  *packetfuzz.Net
	agent     *agent
	live      map[string]*ebpf.Map
	object    *packetfuzz.Object
	links     []link.Link
	spies     [2]*spy               // before and after the programs
	peers     map[wire.Endpoint]int // UDP sockets of endpoints
	listeners []int
	accepted  int

	model       model
	features    packetfuzz.Features
	own         [slots]*own
	affinities  *packetfuzz.Hash
	senders     *packetfuzz.Hash
	sent        *packetfuzz.Hash
	connections []byte
	layouts     struct{ client, affinity, sent, endpoint, origin packetfuzz.Layout }

	world    []proxy.Frontend
	entries  []proxy.Frontend // as they are now
	start    uint64
	changed  bool
	left     bool             // the state still has to be cleared
	focus    [2]int           // frontends that this case uses more often than others
	fresh    bool             // focus must be selected
	earlier  [][callSize]byte // calls of this case
	outcomes map[string]uint64
}

// New opens the agent and loads the programs of an object file.
func New(object string) (*Target, error) {
	t := &Target{outcomes: map[string]uint64{}, peers: map[wire.Endpoint]int{}}
	if err := t.open(object); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// private are the instrumented programs' own maps.
var private = []string{"affinities", "senders", "sent", "origins", "connections"}

func (t *Target) open(object string) (err error) {
	if t.net, t.pod, err = newNet(); err != nil {
		return err
	}
	if t.agent, err = openAgent(); err != nil {
		return err
	}
	if err := t.listen(); err != nil {
		return err
	}
	if err := t.load(object); err != nil {
		return err
	}
	if err := t.maps(); err != nil {
		return err
	}
	m := &t.model
	*m = model{nodes: map[wire.Addr]bool{}, saw: &t.features, affinity: map[client]*chosen{}, senders: map[client]*chosen{},
		sent: map[sentKey]wire.Endpoint{}, connected: map[uint32]uint64{}, counts: map[string]uint64{}}
	for _, n := range nodes {
		m.nodes[addr(n)] = true
	}
	for i, pod := range []bool{false, true} {
		s, err := t.newSocket(kind{pod: pod})
		if err != nil {
			return err
		}
		if m.cookies[i], err = unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
			return err
		}
		unix.Close(s.fd)
	}
	t.start = 1 << 41
	return t.attach()
}

func (t *Target) load(object string) error {
	t.live = map[string]*ebpf.Map{}
	for _, at := range []ebpf.AttachType{ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupUDP4Sendmsg} {
		q, err := link.QueryPrograms(link.QueryOptions{Target: int(t.agent.nobody.Fd()), Attach: at})
		if err != nil {
			return err
		}
		if len(q.Programs) != 1 {
			return fmt.Errorf("%d programs of the agent at its cgroup", len(q.Programs))
		}
		maps, err := packetfuzz.LiveMaps(q.Programs[0].ID)
		if err != nil {
			return err
		}
		for name, m := range maps {
			t.live[name] = m
		}
	}
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return err
	}
	t.object, err = packetfuzz.Load(spec, t.live, private, func(s *ebpf.CollectionSpec) error {
		for _, name := range []string{"affinities", "senders", "sent"} {
			s.Maps[name].MaxEntries = 256 // no case has so many
		}
		s.Maps["connections"].MaxEntries = t.live["connections"].MaxEntries()
		for name, p := range s.Programs {
			if p.Type == ebpf.Tracing { // the agent's iterator
				delete(s.Programs, name)
			}
		}
		return nil
	})
	return err
}

func (t *Target) maps() (err error) {
	o := t.object
	t.affinities, t.senders, t.sent = packetfuzz.NewHash(o.Maps["affinities"]), packetfuzz.NewHash(o.Maps["senders"]), packetfuzz.NewHash(o.Maps["sent"])
	for name, l := range map[string]*packetfuzz.Layout{
		"affinity_key": &t.layouts.client, "affinity": &t.layouts.affinity, "sent_key": &t.layouts.sent, "endpoint": &t.layouts.endpoint, "origin": &t.layouts.origin,
	} {
		if *l, err = packetfuzz.LayoutOf(o.Spec.Types, name); err != nil {
			return err
		}
	}
	t.connections, err = packetfuzz.Memory(o.Maps["connections"])
	return err
}

// attach makes this process a client, in a cgroup with the programs and with spies around
// them.
func (t *Target) attach() (err error) {
	folder := t.agent.clients.Name()
	if t.spies[0], err = newSpy(folder); err != nil {
		return err
	}
	for name, p := range t.object.Programs {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: folder, Attach: t.object.Spec.Programs[name].AttachType, Program: p})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		t.links = append(t.links, l)
	}
	if t.spies[1], err = newSpy(folder); err != nil {
		return err
	}
	return testkit.JoinCgroup(folder)
}

// Close closes everything.
func (t *Target) Close() error {
	for i := range t.own {
		t.end(i)
	}
	for _, fd := range t.peers {
		unix.Close(fd)
	}
	for _, fd := range t.listeners {
		unix.Close(fd)
	}
	for _, s := range t.spies {
		if s != nil {
			s.close()
		}
	}
	for _, l := range t.links {
		l.Close()
	}
	var errs []error
	if t.agent != nil {
		errs = t.agent.close()
	}
	if t.object != nil {
		t.object.Close()
	}
	for _, n := range []*packetfuzz.Net{t.net, t.pod} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// Name implements packetfuzz.Target.
func (t *Target) Name() string { return "sockets" }

// Hooks implements packetfuzz.Target.
func (t *Target) Hooks() []string { return calls }

// MaxFrame implements packetfuzz.Target.
func (t *Target) MaxFrame() int { return callSize }

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
	m := &t.model
	if t.changed {
		t.entries = append(t.entries[:0], t.world...)
		if err := t.configure(t.world); err != nil {
			return err
		}
		t.changed = false
	}
	if t.start += caseTime; t.start >= 1<<61 {
		t.start = 1 << 41
	}
	m.ns, m.random, t.fresh, t.earlier = t.start, 1, true, t.earlier[:0]
	t.object.Control.Nanoseconds, t.object.Control.Random = m.ns, m.random
	for i := range t.own {
		t.end(i)
	}
	if t.accepted > 500 {
		t.accept()
	}
	if t.left {
		for _, h := range []*packetfuzz.Hash{t.affinities, t.senders, t.sent} {
			if _, err := h.Drain(); err != nil {
				return err
			}
		}
	}
	t.left = true
	clear(m.affinity)
	clear(m.senders)
	clear(m.sent)
	clear(m.connected)
	clear(m.counts)
	clear(t.connections)
	return nil
}

// accept closes the endpoints' connections whose clients are gone.
func (t *Target) accept() {
	for _, l := range t.listeners {
		for {
			fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			unix.Close(fd)
		}
	}
	t.accepted = 0
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
	t.spies[0].reset()
	t.spies[1].reset()
	err := t.call(int(s.Hook)%len(calls), parseCall(s.Frame))
	if err == nil && t.object.Control.Random != m.random {
		err = packetfuzz.Violated("not as many random numbers as the model takes")
	}
	return err
}

// Finish implements packetfuzz.Target.
func (t *Target) Finish() error {
	m := &t.model
	for what, n := range m.counts {
		t.outcomes[what] += n
	}
	for id, want := range m.connected {
		if is := binary.NativeEndian.Uint64(t.connections[8*id:]); is != want {
			return packetfuzz.Violated("service %d has %d connections, not %d", id, is, want)
		}
	}
	if err := t.compareClients("affinities", t.affinities, m.affinity); err != nil {
		return err
	}
	if err := t.compareClients("senders", t.senders, m.senders); err != nil {
		return err
	}
	n, err := t.sent.Drain()
	if err != nil {
		return err
	}
	for i := range n {
		key, value := t.sent.Entry(i)
		k := sentKey{binary.NativeEndian.Uint64(key[t.layouts.sent.At("cookie"):]), t.endpointAt(key[t.layouts.sent.At("target"):])}
		if is, want := t.endpointAt(value), m.sent[k]; is != want {
			return packetfuzz.Violated("%+v is remembered to be for %+v, not for %+v", k, is, want)
		}
	}
	if n != len(m.sent) {
		return packetfuzz.Violated("%d targets of unconnected sockets are remembered, not %d", n, len(m.sent))
	}
	t.left = false
	return nil
}

func (t *Target) endpointAt(b []byte) wire.Endpoint {
	l := &t.layouts.endpoint
	return wire.Endpoint{Addr: wire.Addr(b[l.At("addr"):][:16]), Port: binary.BigEndian.Uint16(b[l.At("port"):])}
}

func (t *Target) compareClients(what string, h *packetfuzz.Hash, want map[client]*chosen) error {
	n, err := h.Drain()
	if err != nil {
		return err
	}
	for i := range n {
		key, value := h.Entry(i)
		l, v := &t.layouts.client, &t.layouts.affinity
		k := client{
			binary.NativeEndian.Uint64(key[l.At("client")+8:]), key[l.At("kind")], binary.NativeEndian.Uint32(key[l.At("id"):]),
		}
		is := chosen{
			wire.Endpoint{Addr: wire.Addr(value[v.At("addr"):][:16]), Port: binary.BigEndian.Uint16(value[v.At("port"):])},
			binary.NativeEndian.Uint64(value[v.At("used"):]),
		}
		if w := want[k]; w == nil || *w != is {
			return packetfuzz.Violated("%s: %+v has %+v, not %+v", what, k, is, w)
		}
	}
	if n != len(want) {
		return packetfuzz.Violated("%s: %d are remembered, not %d", what, n, len(want))
	}
	return nil
}

// change has the agent change a frontend, selected by a number.
func (t *Target) change(number uint64) error {
	rng := rand.New(rand.NewPCG(number, 9))
	if !t.changed {
		t.entries = append(t.entries[:0], t.world...)
	}
	t.changed = true
	t.entries = changed(rng, t.entries, int(number&0xffff))
	return t.configure(t.entries)
}
