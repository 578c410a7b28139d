package sockets

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// slots is the number of concurrent sockets of a case.
const slots = 6

// System calls, as hooks.
const (
	callConnect    = iota
	callDisconnect // connect to AF_UNSPEC
	callSend       // sendto an address
	callReceive    // an endpoint sends
	callPeer       // getpeername
	callClose
)

var calls = []string{"connect", "disconnect", "send", "receive", "peer", "close"}

// kind is how a socket is created.
type kind struct{ v6, tcp, pod bool }

// call is the content of a step.
type call struct {
	slot  int
	kind  kind // for a new socket
	fresh bool // replaces the slot's socket
	to    wire.Endpoint
}

// callSize is the length of a step's frame: a slot, flags, an address and a port.
const callSize = 20

func parseCall(b []byte) (c call) {
	var all [callSize]byte
	copy(all[:], b)
	c.slot = int(all[0]) % slots
	c.kind = kind{v6: all[1]&1 != 0, tcp: all[1]&2 != 0, pod: all[1]&12 == 12}
	c.fresh = all[1]&0x70 == 0x70
	c.to = wire.Endpoint{Addr: wire.Addr(all[2:18]), Port: binary.BigEndian.Uint16(all[18:])}
	return c
}

func (c *call) append(b []byte, flags byte) []byte {
	b = append(b, byte(c.slot), flags)
	b = append(b, c.to.Addr[:]...)
	return binary.BigEndian.AppendUint16(b, c.to.Port)
}

// unknown is a peer address that the kernel chooses.
var unknown = wire.Endpoint{Port: 1}

// own is a socket of this process.
type own struct {
	fd   int
	kind kind
	used bool // a TCP socket has been connected
}

func (t *Target) newSocket(k kind) (s *own, err error) {
	s = &own{kind: k}
	where := t.net
	if k.pod {
		where = t.pod
	}
	family, how := unix.AF_INET, unix.SOCK_DGRAM
	if k.v6 {
		family = unix.AF_INET6
	}
	if k.tcp {
		how = unix.SOCK_STREAM
	}
	open := func() error {
		s.fd, err = unix.Socket(family, how|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	}
	if !k.pod {
		return s, open()
	}
	return s, where.Visit(t.net, open)
}

// socket returns a slot's socket, or creates one.
func (t *Target) socket(c *call) (*own, *state, error) {
	s := t.own[c.slot]
	if s != nil && !c.fresh {
		return s, t.model.sockets[c.slot], nil
	}
	t.end(c.slot)
	s, err := t.newSocket(c.kind)
	if err != nil {
		return nil, nil, err
	}
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return nil, nil, err
	}
	proto := byte(wire.UDP)
	if c.kind.tcp {
		proto = wire.TCP
		err = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	t.own[c.slot] = s
	t.model.sockets[c.slot] = &state{cookie: cookie, proto: proto, pod: c.kind.pod}
	return s, t.model.sockets[c.slot], err
}

func (t *Target) end(slot int) {
	if s := t.own[slot]; s != nil {
		unix.Close(s.fd)
		t.own[slot], t.model.sockets[slot] = nil, nil
	}
}

func (t *Target) call(what int, c call) error {
	if what == callClose {
		t.end(c.slot)
		return nil
	}
	s, st, err := t.socket(&c)
	if err != nil {
		return err
	}
	if !s.kind.v6 && !c.to.Addr.Is4() {
		return nil // no address for such a socket
	}
	switch what {
	case callConnect:
		return t.connect(&c, s, st)
	case callDisconnect:
		if !s.kind.tcp && disconnect(s.fd) {
			st.peer = wire.Endpoint{}
		}
		return nil
	case callSend:
		return t.send(&c, s, st)
	case callReceive:
		return t.receive(&c, s, st)
	}
	return t.peer(s, st)
}

// disconnect dissolves the association of a UDP socket.
func disconnect(fd int) bool {
	nobody := [16]byte{} // AF_UNSPEC
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nobody)), unsafe.Sizeof(nobody))
	return errno == 0
}

// judge compares what happened to an address with the model's prediction.
func (t *Target) judge(what string, c *call, want outcome, err error) error {
	if n := t.spies[1].calls(); n != 1 {
		return packetfuzz.Violated("%s to %+v: the programs were called %d times (%v)", what, c.to, n, err)
	}
	if got := t.spies[1].endpoint(); got != want.to {
		return packetfuzz.Violated("%s to %+v goes to %+v, not to %+v", what, c.to, got, want.to)
	}
	if refused := errors.Is(err, unix.ECONNREFUSED) && want.refused; refused != want.refused {
		return packetfuzz.Violated("%s to %+v: %v, but refused: %v", what, c.to, err, want.refused)
	}
	return nil
}

func (t *Target) connect(c *call, s *own, st *state) error {
	if s.kind.tcp && s.used {
		return nil // the kernel rejects it before the programs
	}
	err := unix.Connect(s.fd, sockaddr(c.to, s.kind.v6))
	if t.spies[0].calls() == 0 && err != nil {
		return nil // the same
	}
	c.to = t.spies[0].endpoint() // the kernel may have changed it
	want := t.model.connect(st, c.to)
	s.used = true
	if err := t.judge("connect", c, want, err); err != nil {
		return err
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		if st.peer = want.to; want.to.Addr.Zero() || want.to.Addr == proxied.AnyOf(true) {
			st.peer = unknown // the kernel uses its own address
		}
		if s.kind.tcp {
			t.accepted++
		}
	} else if !s.kind.tcp && !want.refused {
		st.peer = unknown
	}
	return t.compareOrigin(s, st)
}

// compareOrigin compares the stored origin of a connected socket.
func (t *Target) compareOrigin(s *own, st *state) error {
	b, err := t.object.Maps["origins"].LookupBytes(uint32(s.fd))
	if err != nil {
		return err
	}
	if b == nil || st.origin == nil {
		if (b == nil) != (st.origin == nil) {
			return packetfuzz.Violated("the origin is %x, not %+v", b, st.origin)
		}
		return nil
	}
	l := &t.layouts.origin
	key := b[l.At("service"):]
	is := origin{asked: t.endpointAt(b[l.At("asked"):]), target: t.endpointAt(b[l.At("target"):])}
	is.service = proxied.Key{Endpoint: wire.Endpoint{Addr: wire.Addr(key[:16]), Port: binary.BigEndian.Uint16(key[16:])}, Proto: key[18]}
	if is != *st.origin {
		return packetfuzz.Violated("the origin is %+v, not %+v", is, *st.origin)
	}
	cookie, space := binary.NativeEndian.Uint64(b[l.At("cookie"):]), binary.NativeEndian.Uint64(b[l.At("netns"):])
	if st.proto == wire.UDP && (cookie != st.cookie || space != t.model.cookieOf(st)) {
		return packetfuzz.Violated("the origin is of socket %d in namespace %d, not %d in %d", cookie, space, st.cookie, t.model.cookieOf(st))
	}
	return nil
}

func (t *Target) send(c *call, s *own, st *state) error {
	if s.kind.tcp {
		return nil
	}
	err := unix.Sendto(s.fd, []byte("fairlead"), 0, sockaddr(c.to, s.kind.v6))
	if t.spies[0].calls() == 0 {
		return nil // the kernel rejects it before, or it was connected to exactly this address
	}
	c.to = t.spies[0].endpoint() // the kernel may have changed it
	want := t.model.toward(st, c.to, false)
	if !want.refused && err != nil {
		err = nil // no route: up to the kernel
	}
	return t.judge("send", c, want, err)
}

// receive has an endpoint send something to a socket, and checks the sender that the
// socket sees.
func (t *Target) receive(c *call, s *own, st *state) error {
	from := c.to
	if st.peer != (wire.Endpoint{}) {
		from = st.peer // it receives nothing from others
	} else if len(st.targets) > 0 && c.to.Port%2 == 0 {
		from = st.targets[int(c.to.Port)%len(st.targets)]
	}
	peer, ok := t.peers[from]
	if s.kind.tcp || !ok || s.kind.pod {
		return nil
	}
	at, ok := t.reachedAt(s, from.Addr.Is4())
	if !ok || unix.Sendto(peer, []byte("answer"), 0, sockaddr(at, !from.Addr.Is4())) != nil {
		return nil
	}
	var b [64]byte
	_, who, err := unix.Recvfrom(s.fd, b[:], 0)
	for err != nil && !errors.Is(err, unix.EAGAIN) { // an ICMP error is returned first, once
		_, who, err = unix.Recvfrom(s.fd, b[:], 0)
	}
	if err != nil {
		return nil // it was not for this socket
	}
	t.model.counts["received"]++
	got, want := endpoint(who), t.model.seen(st, from)
	if got != want {
		return packetfuzz.Violated("what %+v sends comes from %+v, not from %+v", from, got, want)
	}
	return nil
}

// reachedAt returns where endpoints reach a socket.
func (t *Target) reachedAt(s *own, v4 bool) (e wire.Endpoint, ok bool) {
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return e, false
	}
	e = endpoint(name)
	if any := e.Addr; any.Zero() || any == proxied.AnyOf(true) {
		e.Addr = addr(nodes[family(!v4)])
	}
	return e, e.Port != 0 && e.Addr.Is4() == v4
}

func endpoint(a unix.Sockaddr) wire.Endpoint {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return wire.Endpoint{Addr: wire.From4(a.Addr[:]), Port: uint16(a.Port)}
	case *unix.SockaddrInet6:
		return wire.Endpoint{Addr: a.Addr, Port: uint16(a.Port)}
	}
	return wire.Endpoint{}
}

// peer queries the peer of a socket.
func (t *Target) peer(s *own, st *state) error {
	name, err := unix.Getpeername(s.fd)
	if err != nil || st.peer == unknown {
		return nil
	}
	t.model.counts["peer"]++
	if got, want := endpoint(name), t.model.seen(st, st.peer); got != want {
		return packetfuzz.Violated("a socket is connected to %+v and sees %+v, not %+v", st.peer, got, want)
	}
	return nil
}

// Next implements packetfuzz.Target.
func (t *Target) Next(rng *rand.Rand, s *packetfuzz.Step) {
	switch n := rng.IntN(4000); {
	case n < 200:
		s.Kind, s.Arg = packetfuzz.Wait, packetfuzz.RandomWait(rng)
		return
	case n < 204:
		s.Kind, s.Arg = packetfuzz.Change, rng.Uint64()&^0xffff|uint64(t.one(rng))
		return
	}
	s.Kind = packetfuzz.Packet
	s.Hook = pick(rng, []uint8{callConnect, callConnect, callConnect, callSend, callSend, callSend, callReceive, callReceive, callPeer, callDisconnect, callClose})
	if n := len(t.earlier); n > 0 && rng.IntN(2) == 0 { // the same socket and address again
		s.Frame = append(s.Frame, t.earlier[rng.IntN(n)][:]...)
		s.Frame[1] &^= 0x10 // no new socket
		return
	}
	c := call{slot: rng.IntN(slots), to: t.some(rng)}
	s.Frame = c.append(s.Frame, byte(rng.Uint32()))
	t.earlier = append(t.earlier, [callSize]byte(s.Frame))
}

// one returns one of the frontends of the world; this case uses some of them more often.
func (t *Target) one(rng *rand.Rand) int {
	if t.fresh {
		t.focus, t.fresh = [2]int{rng.IntN(len(t.world)), rng.IntN(len(t.world))}, false
	}
	if rng.IntN(3) > 0 {
		return t.focus[rng.IntN(2)]
	}
	return rng.IntN(len(t.world))
}

// some returns an address that could be connected to.
func (t *Target) some(rng *rand.Rand) (e wire.Endpoint) {
	v6 := rng.IntN(2) == 0
	switch rng.IntN(8) {
	case 0:
		return wire.Endpoint{Addr: addr(pick(rng, targets[family(v6)])), Port: pick(rng, ports)}
	case 1:
		return wire.Endpoint{Addr: addr(pick(rng, others[family(v6)])), Port: uint16(80 + rng.IntN(12))}
	}
	f := &t.world[t.one(rng)]
	e = proxied.KeyOf(f.Key).Endpoint
	if f.Kind == proxy.NodePort {
		e.Addr = addr(nodes[family(f.Addr.Is6())])
		if rng.IntN(3) == 0 {
			e.Addr = addr(pick(rng, others[family(f.Addr.Is6())]))
		}
	}
	return e
}

func changed(rng *rand.Rand, all []proxy.Frontend, i int) []proxy.Frontend {
	return proxied.Change(rng, all, i,
		func(f *proxy.Frontend) proxy.Choice { return choice(rng, f.Addr.Is6()) },
		func() proxy.Frontend { return frontendOf(rng, rng.IntN(2) == 0, rng.IntN(12)) })
}
