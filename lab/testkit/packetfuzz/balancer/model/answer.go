package model

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/hashes"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/balancer/programmed"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// answerPlain sends a backend's answer to its client.
func (m *Model) answerPlain(p *packet, f *Flow) int32 {
	switch {
	case p.malformed:
		return m.drop(malformed)
	case p.ttl <= 1:
		return m.drop(ttlExpired)
	}
	m.came(f, p)
	view, _ := wire.ReadIP(m.frame, 14, len(m.frame), !p.Dst.Is4(), false)
	return m.sendBack(&sending{packet: p, view: &view, plain: true}, f)
}

// answerOdd does the same for a slow-path packet, or for an error about a packet that the
// backend was sent.
func (m *Model) answerOdd(o *oddPacket, f *Flow) int32 {
	if o.ttl <= 1 {
		return m.drop(ttlExpired)
	}
	if !o.isError && f.Proxied == nil {
		m.came(f, &o.packet)
	}
	return m.sendBack(&sending{packet: &o.packet, view: &o.view, tagged: o.tagged, isError: o.isError, quoted: o.quoted, handed: o.handed}, f)
}

func (m *Model) sendBack(s *sending, f *Flow) int32 {
	to := f.Tuple.Turned()
	w, mtu := m.wayBack(s, &to.Dst)
	switch {
	case w.kind == nowhere:
		return m.drop(noRoute)
	case s.length > mtu:
		return m.tooBigAnswer(s, mtu)
	case f.Proxied != nil && s.change == nil && !s.isError: // it has something that is not translated
		return m.drop(synOdd)
	}
	if why := s.cannotRewrite(&to); why != "" {
		return m.drop(why)
	}
	m.rewrite(s, to, nil, 0, w, comesFromServer(s))
	return m.leave(w)
}

// comesFromServer reports whether an error comes from the backend itself, which the
// client does not know.
func comesFromServer(s *sending) bool { return s.isError && s.view.Src == s.Src }

// wayBack returns the route to a client, and the maximum length of a packet.
func (m *Model) wayBack(s *sending, client *wire.Addr) (way, int) {
	if s.tagged {
		w := m.way(s)
		return w, w.mtu
	}
	w := m.wayTo(client)
	r := m.routes.To(m.device.Index, !client.Is4(), *client)
	if r.MTU > 0 && w.kind != nowhere {
		return w, int(r.MTU)
	}
	return w, 0xffff
}

// allowance limits the answers that a CPU generates: a thousand per second, a hundred at
// the same time.
type allowance struct {
	at   uint64
	left uint64
}

func (a *allowance) take(now uint64) bool {
	if grown := (now - a.at) / 1_000_000; grown > 0 {
		a.left = min(100, a.left+grown)
		a.at = now
	}
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

// tooBig handles a packet that exceeds the MTU of its route when more bytes are added to
// it.
func (m *Model) tooBig(s *sending, mtu, more int) int32 {
	s.gone = true
	if s.plain {
		return m.odd(s.handed)
	}
	return m.answerTooBig(s, mtu, more, s.Dst)
}

func (m *Model) tooBigAnswer(s *sending, mtu int) int32 {
	if s.plain {
		return m.odd(s.handed)
	}
	return m.answerTooBig(s, mtu, 0, m.own(s.view.V6))
}

// answerTooBig sends the size that fits to the sender, in the name of the packet's
// destination.
func (m *Model) answerTooBig(s *sending, mtu, more int, as wire.Addr) int32 {
	verdict := m.drop(tooBig)
	v := s.view
	if s.isError || as.Zero() || as == emptyOf(v.V6) || !v.V6 && v.Offset > 0 || s.Src.Martian() || !m.answers.take(m.Ns) {
		return verdict
	}
	header, most, least := 20, 576, 68
	if v.V6 {
		header, most, least = 40, 1280, 1280
	}
	quoted := min(v.End-v.L3, most-header-8) &^ 3
	mtu = max(mtu-more, least)
	e := m.change()
	e.Frame = append(e.Frame[:0], m.frame[6:12]...)
	e.Frame = append(e.Frame, m.frame[:6]...)
	e.Frame = append(e.Frame, m.frame[12:v.L3]...)
	e.Frame = appendTooBig(e.Frame, v, as, s.Src, mtu, quoted)
	e.Frame = append(e.Frame, m.frame[v.L3:v.L3+quoted]...)
	at := v.L3 + header
	var pseudo uint64
	if v.V6 {
		pseudo = wire.Pseudo(as, s.Src, wire.ICMPv6, 8+quoted)
	}
	e.KeepSum("ICMP", at+2, packetfuzz.Right, at, at+8+quoted, pseudo)
	return Tx
}

// appendTooBig appends the headers of such an answer.
func appendTooBig(b []byte, v *wire.View, src, dst wire.Addr, mtu, quoted int) []byte {
	at := len(b)
	if v.V6 {
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(8+quoted))
		b = append(append(append(b, wire.ICMPv6, 64), src[:]...), dst[:]...)
		b = append(b, 2, 0, 0, 0)
	} else {
		b = append(b, 0x45, 0xc0)
		b = binary.BigEndian.AppendUint16(b, uint16(28+quoted))
		b = append(b, 0, 0, 0, 0, 64, wire.ICMP, 0, 0)
		b = append(append(b, src[12:]...), dst[12:]...)
		binary.BigEndian.PutUint16(b[at+10:], ^wire.Fold(wire.Sum(b[at:])))
		b = append(b, 3, 4, 0, 0)
	}
	return binary.BigEndian.AppendUint32(b, uint32(mtu))
}

// Fragment is what a first fragment leaves for the later ones.
type Fragment struct {
	seen         uint64
	sport, dport uint16
	proto        byte
	flags        flags
}

func keyOf(o *oddPacket) hashes.Datagram {
	k := hashes.Datagram{Src: o.view.Src, Dst: o.view.Dst, ID: o.view.ID, Proto: o.view.Proto}
	if o.view.V6 {
		k.Proto = 0
	}
	return k
}

func (m *Model) rememberFragment(o *oddPacket) {
	m.Fragments[keyOf(o)] = &Fragment{m.Ns, o.SPort, o.DPort, o.Proto, o.flags &^ (ask | last | admitted)}
}

// rejectFragment records that a datagram's first fragment got no source port.
func (m *Model) rejectFragment(o *oddPacket) {
	k := keyOf(o)
	m.rejected[k.Slot()] = rejection{k, m.now()}
}

// rejection is a datagram, and the tick in which its first fragment was rejected.
type rejection struct {
	hashes.Datagram
	at uint32
}

// fragmentLife is how long a first fragment is remembered.
const fragmentLife = 2_000_000_000

// orphanMost is the longest fragment that user space stores.
const orphanMost = 3072

// recall gives a later fragment the ports of its first one. over means that it goes to
// user space, or ends here.
func (m *Model) recall(o *oddPacket) (verdict int32, over bool) {
	k := keyOf(o)
	f := m.Fragments[k]
	switch {
	case (f == nil || m.Ns-f.seen > fragmentLife) && m.rejected[k.Slot()] == rejection{k, m.now()}:
		return m.drop(noPort), true
	case (f == nil || m.Ns-f.seen > fragmentLife) && len(m.frame) > orphanMost:
		return m.drop(fragmentLost), true
	case f == nil || m.Ns-f.seen > fragmentLife:
		m.Orphans++
		return Drop, true
	case o.view.Offset < leastTransport[f.proto]:
		return m.drop(tinyFragment), true
	}
	o.SPort, o.DPort, o.Proto, o.flags = f.sport, f.dport, f.proto, f.flags
	o.view.Proto = f.proto
	return 0, false
}

// peers returns the load balancers that may know a flow which is unknown here: those that
// drain, and finally this one again.
func (m *Model) peers() []wire.Endpoint {
	family := 0
	if m.config.Own4.Zero() {
		family = 1
	}
	if len(m.config.Draining[family]) == 0 {
		family = 1 - family
	}
	if len(m.config.Draining[family]) == 0 {
		return nil
	}
	list := m.list[:0]
	for _, a := range m.config.Draining[family] {
		list = append(list, wire.Endpoint{Addr: a})
	}
	return append(list, wire.Endpoint{Addr: m.own(family == 1)})
}

// handOn sends a packet to the first load balancer of a list.
func (m *Model) handOn(p *packet, list []wire.Endpoint, v6 bool, handed flags) int32 {
	view, _ := wire.ReadIP(m.frame, 14, len(m.frame), v6, false)
	s := &sending{packet: p, view: &view, plain: true, handed: handed}
	m.aim(s, list)
	return m.tunnel(s, false)
}

// aim gives a packet a list: the first entry becomes the destination, the others are
// listed.
func (m *Model) aim(s *sending, list []wire.Endpoint) {
	for i := range list {
		list[i].Port = 0 // load balancers have no port
	}
	s.server, s.chain, s.hash = &programmed.Server{Endpoint: list[0]}, list[1:], hashes.FlowHash(&s.Tuple)
	if len(list) == 1 {
		s.chain = list
	}
}

// askOdd does the same as ask with a slow-path packet.
func (m *Model) askOdd(o *oddPacket) int32 {
	list := m.handed
	if o.handed == 0 {
		if list = m.peers(); list == nil {
			return m.drop(noBackend)
		}
	}
	s := &sending{packet: &o.packet, view: &o.view, isError: o.isError, quoted: o.quoted, handed: o.handed}
	m.aim(s, list)
	return m.tunnel(s, false)
}

// handedOver handles a packet that another load balancer has handed over.
func (m *Model) handedOver(v *wire.View, tagged bool) int32 {
	list, inner, ok := m.readHanded(v)
	if tagged || !ok || v.Broken || v.IsFragment() {
		return pass
	}
	inner6 := v.Proto == wire.IPv6
	if !m.isOurs(inner, inner6, list) {
		return pass
	}
	isLast := len(list) == 1 && (list[0].Addr == m.config.Own4 || list[0].Addr == m.config.Own6)
	trusted := m.config.Known[v.Src]
	for _, e := range list {
		trusted = trusted && (isLast || m.config.Known[e.Addr])
	}
	if !trusted {
		return m.drop(unknownBalancer)
	}
	rest := ask
	if isLast {
		rest = last
	}
	m.unwrapped = append(append(m.unwrapped[:0], m.frame[:12]...), 8, 0)
	if inner6 {
		m.unwrapped[12], m.unwrapped[13] = 0x86, 0xdd
	}
	m.unwrapped = append(m.unwrapped, m.frame[inner:]...)
	m.frame, m.handed = m.unwrapped, append(m.handed[:0], list...)
	p, ok := readPlain(m.frame, 14, inner6)
	if !ok {
		return m.odd(rest)
	}
	return m.serveHanded(&p, inner6, rest)
}

func (m *Model) serveHanded(p *packet, v6 bool, rest flags) int32 {
	f, _ := m.config.Find(&p.Tuple)
	switch {
	case p.malformed:
		return m.drop(malformed)
	case f == nil || p.ttl <= 1:
		return m.drop(ttlExpired)
	case f.Guarded && !m.guard(p, f, rest):
		return Drop
	}
	p.flags |= rest
	o, verdict := m.stateful(p, f, arrival{
		asks:     func() int32 { return m.handOn(p, m.handed, v6, rest) },
		protects: func(*Flow) int32 { return m.protect(14, v6) },
	})
	if o == nil {
		return verdict
	}
	c := m.choiceOf(o)
	if !c.server.Used {
		return m.drop(noBackend)
	}
	view, _ := wire.ReadIP(m.frame, 14, len(m.frame), v6, false)
	return m.send(&sending{packet: p, view: &view, frontend: f, choice: c, plain: true, handed: rest})
}

// readHanded reads the list of an outer header, and where the inner packet begins.
func (m *Model) readHanded(v *wire.View) (list []wire.Endpoint, inner int, ok bool) {
	b := m.frame
	at, size, end := v.L3+22, 6, v.L4
	if v.V6 {
		at, size = v.L3+44, 18
	}
	if v.L4 > len(b) || v.L4 < at || v.Fragment > 0 {
		return nil, 0, false
	}
	var bytes int
	if v.V6 {
		bytes = int(b[at-1])
		if b[v.L3+6] != wire.DstOpts || b[at-2] != 0x1e || b[at-4] != v.Proto {
			return nil, 0, false
		}
	} else {
		bytes = int(b[at-1]) - 2
		if b[at-2] != 0x9e {
			return nil, 0, false
		}
	}
	n, padded := bytes/size, wire.ListBytes(bytes/size, v.V6)
	if n*size != bytes && bytes >= wire.TagBytes { // it may end with a tag
		n = (bytes - wire.TagBytes) / size
		padded, bytes = wire.TaggedBytes(n, v.V6), bytes-wire.TagBytes
	}
	if n <= 0 || n*size != bytes || n > 5 || padded != end-v.L3-headerBytes(v.V6) {
		return nil, 0, false
	}
	for range n {
		e := wire.Endpoint{Port: binary.BigEndian.Uint16(b[at+size-2:])}
		if v.V6 {
			e.Addr = wire.From6(b[at:])
		} else {
			e.Addr = wire.From4(b[at:])
		}
		list = append(list, e)
		at += size
	}
	return list, end, true
}

// isOurs reports whether this load balancer handles a tunneled packet: one to a frontend
// that tracks flows, or, if it takes the slow path and its frontend is not known yet, one
// to a VIP.
func (m *Model) isOurs(at int, v6 bool, list []wire.Endpoint) bool {
	ports := false
	for _, e := range list {
		ports = ports || e.Port != 0
	}
	b := m.frame[min(at, len(m.frame)):]
	header := headerBytes(v6)
	if len(b) < header {
		return false
	}
	var t wire.Tuple
	var isPlain bool
	if v6 {
		t.Dst, t.Proto = wire.From6(b[24:]), b[6]
		isPlain = wire.HasPorts(t.Proto)
		if src := wire.From6(b[8:]); src.Is4() || t.Dst.Is4() {
			return false
		}
	} else {
		t.Dst, t.Proto = wire.From4(b[16:]), b[9]
		isPlain = b[0]&15 == 5 && binary.BigEndian.Uint16(b[6:])&0x3fff == 0 && wire.HasPorts(t.Proto)
	}
	if !isPlain {
		return !ports && m.config.Wide[t.Dst] != nil
	}
	if len(b) < header+4 {
		return false
	}
	t.DPort = binary.BigEndian.Uint16(b[header+2:])
	f, _ := m.config.Find(&t)
	return f != nil && f.Stateful
}
