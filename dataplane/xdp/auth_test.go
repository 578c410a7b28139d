package xdp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/nodekey"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/authtag"
)

var (
	keyA = nodekey.Key{K0: 0x0123456789abcdef, K1: 0xfedcba9876543210, ID: 0x5f}
	keyB = nodekey.Key{K0: 0x1111222233334444, K1: 0x5555666677778888, ID: 0xa3}
	keyC = nodekey.Key{K0: 0x9999aaaabbbbcccc, K1: 0xddddeeeeffff0000, ID: 0x5f}
)

// carried is a transmitted packet, decoded by this test's own parser.
type carried struct {
	// bare is the frame without the list's header, with lengths and checksums
	// adjusted.
	bare []byte
	list []netip.AddrPort
	tag  []byte
	of   authtag.Packet // what the tag covers
}

// unload removes the list from an untagged Ethernet frame, if there is one.
func unload(t *testing.T, frame []byte) carried {
	t.Helper()
	c := carried{bare: slices.Clone(frame)}
	l3, size, header := frame[14:], 4, 20
	if is6(frame) {
		size, header = 16, 40
	}
	proto, end := byte(0), 0 // next protocol, and its offset in l3
	if size == 4 {
		proto, end = l3[9], int(l3[0]&15)*4
		c.of.Src, c.of.Dst = addrIn(l3[12:16]), addrIn(l3[16:20])
		if l3[0] > 0x45 && l3[20] == 0x9e {
			c.read(t, l3[22:20+int(l3[21])], size)
			c.bare = slices.Concat(frame[:34], l3[end:])
			c.bare[14] = 0x45
			header4(c.bare[14:])
		}
	} else {
		proto, end = l3[6], 40
		c.of.Src, c.of.Dst = addrIn(l3[8:24]), addrIn(l3[24:40])
		if proto == 60 && l3[42] == 0x1e {
			c.read(t, l3[44:44+int(l3[43])], size)
			proto, end = l3[40], 40+(int(l3[41])+1)*8
			c.bare = slices.Concat(frame[:54], l3[end:])
			c.bare[20] = proto
			binary.BigEndian.PutUint16(c.bare[18:], uint16(len(c.bare)-54))
		}
	}
	c.of.Place = authtag.Outer
	switch {
	case proto == 17 && binary.BigEndian.Uint16(l3[end+2:]) == 6080:
		c.of.Place, end = authtag.GUE, c.gue(t, l3, end, header, size)
	case proto != 4 && proto != 41:
		c.of.Place = authtag.Own
		from, to := c.of.Src, c.of.Dst
		c.of.Src, c.of.Dst = netip.Addr{}, netip.Addr{}
		if size == 4 && binary.BigEndian.Uint16(l3[6:])&0x3fff != 0 {
			proto = 0
		}
		c.plain(l3[end:], proto, from, to)
		return c
	}
	c.inner(l3[end:])
	return c
}

// gue removes the private data, and returns the offset of the inner packet.
func (c *carried) gue(t *testing.T, l3 []byte, udp, header, size int) (end int) {
	t.Helper()
	at, words := udp+12, int(l3[udp+8]&31)
	end = at + words*4
	if words == 0 {
		return end
	}
	private := l3[at:end]
	if private[0] != 0x9e || private[3] != 0 {
		t.Errorf("private data %x", private)
	}
	used := int(private[1])*(size+2) + int(private[2])*4
	c.read(t, private[4:4+used], size)
	if pad := private[4+used:]; len(pad) > 3 || !bytes.Equal(pad, make([]byte, len(pad))) {
		t.Errorf("private data %x ends with %x", private, pad)
	}
	c.bare = slices.Concat(c.bare[:14+at], l3[end:])
	c.bare[14+udp+8] = 0
	binary.BigEndian.PutUint16(c.bare[14+udp+4:], uint16(len(c.bare)-14-udp))
	if header == 20 {
		header4(c.bare[14:])
	} else {
		binary.BigEndian.PutUint16(c.bare[18:], uint16(len(c.bare)-54))
	}
	return end
}

// read reads endpoints, and the tag after them.
func (c *carried) read(t *testing.T, b []byte, size int) {
	t.Helper()
	for ; len(b) >= size+2 && len(b) != 8; b = b[size+2:] {
		c.list = append(c.list, netip.AddrPortFrom(addrIn(b[:size]), binary.BigEndian.Uint16(b[size:])))
	}
	if len(b) == 8 && size == 4 && len(c.list) > 0 || len(b) == 8 {
		c.tag = b
	} else if len(b) > 0 {
		t.Errorf("%x behind %v", b, c.list)
	}
}

func addrIn(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// inner records the packet in a tunnel.
func (c *carried) inner(ip []byte) {
	if ip[0]>>4 == 6 {
		c.plain(ip[40:], ip[6], addrIn(ip[8:24]), addrIn(ip[24:40]))
		return
	}
	proto := ip[9]
	if ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
		proto = 0
	}
	c.plain(ip[20:], proto, addrIn(ip[12:16]), addrIn(ip[16:20]))
}

// plain records ports and protocol, if a tag covers them.
func (c *carried) plain(l4 []byte, proto byte, from, to netip.Addr) {
	var sport, dport uint16
	if proto == 6 || proto == 17 || proto == 132 {
		c.of.Protocol, sport, dport = proto, binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	}
	c.of.From, c.of.To = netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport)
}

// authFrames are packets of every kind to a VIP.
func authFrames(t *testing.T, v6 bool) map[string][]byte {
	frames := map[string][]byte{}
	for kind, in := range map[string]packet{"SYN": {flags: "S"}, "data": {flags: "A", payload: 300}, "datagram": {udp: true, payload: 300}, "SCTP": {sctp: true}} {
		in.src, in.dst = clients[v6], vips[v6]
		frame := in.bytes(t)
		frames[kind] = frame
		if kind == "SCTP" {
			continue
		}
		for dress, f := range dressed(frame) {
			frames[kind+", "+dress] = f
		}
		if kind != "SYN" {
			for i, f := range fragments(frame, 7, 104) {
				frames[fmt.Sprintf("%s, fragment %d", kind, i)] = f
			}
		}
		frames[kind+", VLAN"] = tagged(frame, 5)
	}
	answer := packet{src: vips[v6], dst: clients[v6], flags: "A"}.bytes(t)[14:]
	for i, kind := range errorKinds[v6] {
		frames[fmt.Sprintf("ICMP error %d", i)] = icmp{packet: packet{src: routers[v6], dst: addrOf(vips[v6])}, kind: kind[0], code: kind[1], rest: 1400, body: answer}.bytes(t)
	}
	return frames
}

// TestTagsOfPackets compares the packets sent by a data plane with keys and one without,
// for slots with every number of older owners: only the list differs, by a valid tag at
// its end.
func TestTagsOfPackets(t *testing.T) {
	for name, change := range map[string]func(*desired.Frontend){
		"tunnel":  func(*desired.Frontend) {},
		"GUE":     func(f *desired.Frontend) { f.Encapsulation = service.GUE },
		"dsr-nat": func(f *desired.Frontend) { f.Method = service.DSRNAT },
		"dr":      func(f *desired.Frontend) { f.Method = service.DR },
	} {
		t.Run(name, func(t *testing.T) {
			bothFamilies(t, func(t *testing.T, v6 bool) {
				f := frontend(service.Tunnel, vips[v6], 0, servers[v6])
				f.Survival = service.SecondChance
				change(&f)
				compareTagged(t, f, v6)
			})
		})
	}
}

func compareTagged(t *testing.T, f desired.Frontend, v6 bool) {
	var nets [2]*testNet
	var planes [2]*DataPlane
	for i, keys := range []nodekey.Keys{nil, {keyA, keyB}} {
		c := config()
		c.PinDir = fmt.Sprint("/sys/fs/bpf/test", i)
		c.Auth = nodekey.Auth{Keys: keys, Require: true}
		nets[i] = newNet(t)
		planes[i] = nets[i].open(t, c)
	}
	names := slices.Sorted(maps.Keys(authFrames(t, v6)))
	like := netip.MustParseAddrPort(servers[v6])
	if f.Method == service.DR { // only to hosts on the same segment
		like = netip.MustParseAddrPort(map[bool]string{false: "172.16.0.50:80", true: "[fd00::50]:80"}[v6])
	}
	addr, lengths := like.Addr(), map[int]bool{}
	var backends []service.Backend
	for range 7 {
		for i := range backends {
			backends[i].Weight = 0
		}
		backends = append(backends, service.Backend{Addr: netip.AddrPortFrom(addr, like.Port()), Weight: 1})
		for _, n := range nets {
			testkit.Do(t, n.balancer, func() error { neighbor(t, n.eth0, addr.String(), macServer1); return nil })
		}
		for _, f.Protocol = range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
			f.Backends = slices.Clone(backends)
			for i := range f.Backends {
				if f.Protocol == service.SCTP || f.Method == service.DR { // modes that keep the port
					f.Backends[i].Addr = netip.AddrPortFrom(f.Backends[i].Addr.Addr(), f.Port)
				}
			}
			for _, d := range planes {
				upsert(t, d, f)
			}
		}
		frames := authFrames(t, v6)
		for _, name := range names {
			v, plain := nets[0].run(t, planes[0], frames[name])
			again, out := nets[1].run(t, planes[1], frames[name])
			if v != again {
				t.Errorf("%s: %v, with keys %v %v", name, v, again, planes[1].Describe().Drops)
				continue
			}
			if v == redirect {
				sameButTagged(t, name, f.Method, untag(plain), untag(out), lengths)
			}
		}
		addr = addr.Next()
	}
	if want := map[bool]int{false: 5, true: 4}[f.Method != service.Tunnel && !v6]; !lengths[0] || !lengths[want] {
		t.Errorf("lists with %v older owners were seen", slices.Sorted(maps.Keys(lengths)))
	}
}

// sameButTagged compares a packet with one that has a tag.
func sameButTagged(t *testing.T, name string, method service.Method, plain, out []byte, lengths map[int]bool) {
	t.Helper()
	sumsFit(t, out[14:])
	was, now := unload(t, plain), unload(t, out)
	want := was.list
	if now.of.Place == authtag.Own {
		if len(now.list) == 0 && method != service.DR && bytes.Equal(plain, out) {
			return // most dsr-nat packets have no list
		}
		if len(want) == 0 && method == service.DR && len(now.list) > 0 {
			want = now.list[:1] // dr always carries the original destination
		}
		if len(want) == 6 && want[0].Addr().Is4() { // too many to fit
			last := want[4]
			if now.of.Protocol == 17 || was.of.Protocol == 17 || plain[14+9] == 17 {
				last = want[5]
			}
			want = append(slices.Clone(want[:4]), last)
		}
		lengths[len(now.list)-1] = true
	} else {
		lengths[len(now.list)] = true
	}
	if !slices.Equal(now.list, want) || !bytes.Equal(now.bare, was.bare) {
		t.Errorf("%s: the list is %v, want %v\n got %s\nwant %s", name, now.list, want, hex.Dump(out[:min(len(out), 200)]), hex.Dump(plain[:min(len(plain), 200)]))
	}
	now.of.List = now.list
	if tag := now.of.Tag(keyA); !bytes.Equal(now.tag, tag) {
		t.Errorf("%s: tag %x, want %x of %+v", name, now.tag, tag, now.of)
	}
}

// TestTagsNeedRoom: a packet that fits the path only without a tag is answered with the
// size that fits with one.
func TestTagsNeedRoom(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		for _, gue := range []bool{false, true} {
			for _, keys := range []nodekey.Keys{nil, {keyA}} {
				t.Run(fmt.Sprintf("gue %v, %d keys", gue, len(keys)), func(t *testing.T) { needRoom(t, v6, gue, keys) })
			}
		}
	})
}

func needRoom(t *testing.T, v6, gue bool, keys nodekey.Keys) {
	n, c := newNet(t), config()
	c.Auth.Keys = keys
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[v6], service.TCP, servers[v6])
	header, tag := 20, 12
	if v6 {
		header, tag = 40, 16
	}
	if gue {
		f.Encapsulation, header, tag = service.GUE, header+12, 12
	}
	if keys == nil {
		tag = 0
	}
	upsert(t, d, f)
	in := packet{src: clients[v6], dst: vips[v6], flags: "A", payload: 1400}
	in.payload -= len(in.bytes(t)) - 14 - (1500 - header - tag)
	if v, out := n.run(t, d, in.bytes(t)); v != redirect || len(out) != 1514 {
		t.Errorf("what fits: %v, %d bytes", v, len(out))
	}
	in.payload++
	frame := in.bytes(t)
	rawRow{name: "one byte more", in: frame, verdict: redirect, drop: "too-big",
		out: tooBig(t, frame, addrOf(in.dst), addrOf(in.src), uint32(1500-header-tag))}.check(t, n, d)
}

// TestTaggedHandover: load balancers with a key hand packets over, on the fast and slow
// path, which come back tagged if nobody knows the flow.
func TestTaggedHandover(t *testing.T) {
	for _, method := range []service.Method{service.FullNAT, service.Tunnel} {
		bothFamilies(t, func(t *testing.T, v6 bool) {
			required := nodekey.Auth{Keys: nodekey.Keys{keyA}, Require: true}
			p := newPairOf(t, method, v6, 1500, [2]nodekey.Auth{required, required})
			p.known.payload = 300
			frames := dressed(p.known.bytes(t))
			frames["plain"] = p.known.bytes(t)
			for i, f := range fragments(p.known.bytes(t), 7, 104) {
				frames[fmt.Sprintf("fragment %d", i)] = f
			}
			answer := packet{src: p.known.dst, dst: p.known.src, flags: "A"}.bytes(t)[14:]
			kind := errorKinds[v6][2]
			frames["ICMP error"] = icmp{packet: packet{src: routers[v6], dst: addrOf(vips[v6])}, kind: kind[0], code: kind[1], rest: 1300, body: answer}.bytes(t)
			for _, name := range slices.Sorted(maps.Keys(frames)) {
				p.same(t, name, frames[name])
				_, handed := p.stays.run(t, p.b, frames[name])
				c := unload(t, handed)
				if c.of.List = c.list; !bytes.Equal(c.tag, c.of.Tag(keyA)) {
					t.Errorf("%s: tag %x, want %x of %+v", name, c.tag, c.of.Tag(keyA), c.of)
				}
				p.forged(t, name, handed)
			}
			in := p.unknownFlow(999).bytes(t)
			_, handed := p.stays.run(t, p.b, in)
			_, back := p.leaves.run(t, p.d, delivered(handed))
			if v, _ := p.stays.run(t, p.b, delivered(back)); v != redirect {
				t.Errorf("what nobody knows comes back: %v, %v", v, p.b.Describe().Drops)
			}
		})
	}
}

// forged sends the same packet without its tag and with another's.
func (p *pair) forged(t *testing.T, name string, handed []byte) {
	t.Helper()
	c := unload(t, handed)
	next := make([]string, len(c.list))
	for i, e := range c.list {
		next[i] = e.Addr().String()
	}
	without := p.handed(t, slices.Concat(handed[:12], ethertypeOf(c), innerOf(t, handed)), p.own[0], next...)
	rawRow{name: name + ", without a tag", in: delivered(without), verdict: drop, drop: "no-auth-tag"}.check(t, p.leaves, p.d)
	wrong := bytes.Replace(handed, c.tag, c.of.Tag(keyC), 1)
	rawRow{name: name + ", with a wrong tag", in: delivered(wrong), verdict: drop, drop: "wrong-auth-tag"}.check(t, p.leaves, p.d)
}

func ethertypeOf(c carried) []byte {
	if c.of.To.Addr().Is6() {
		return []byte{0x86, 0xdd}
	}
	return []byte{8, 0}
}

// innerOf is the inner packet of a tunnel's frame.
func innerOf(t *testing.T, frame []byte) []byte {
	bare := unload(t, frame).bare
	if is6(bare) {
		return bare[54:]
	}
	return bare[34:]
}

// TestTagsAreRolledOut: load balancers with and without a key hand packets to each other
// while none requires tags, and during a key change when all do.
func TestTagsAreRolledOut(t *testing.T) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		some, none := nodekey.Auth{Keys: nodekey.Keys{keyA}}, nodekey.Auth{}
		for name, auths := range map[string][2]nodekey.Auth{"from one without": {none, some}, "to one without": {some, none}, "both": {some, some}} {
			t.Run(name, func(t *testing.T) {
				p := newPairOf(t, service.FullNAT, v6, 1500, auths)
				p.same(t, name, p.known.bytes(t))
			})
		}
		required := nodekey.Auth{Keys: nodekey.Keys{keyA}, Require: true}
		p := newPairOf(t, service.FullNAT, v6, 1500, [2]nodekey.Auth{required, required})
		for _, step := range []struct{ stays, leaves nodekey.Keys }{
			{nodekey.Keys{keyA}, nodekey.Keys{keyA, keyB}}, {nodekey.Keys{keyA, keyB}, nodekey.Keys{keyA, keyB}},
			{nodekey.Keys{keyB, keyA}, nodekey.Keys{keyA, keyB}}, {nodekey.Keys{keyB, keyA}, nodekey.Keys{keyB, keyA}},
			{nodekey.Keys{keyB}, nodekey.Keys{keyB, keyA}}, {nodekey.Keys{keyB}, nodekey.Keys{keyB}},
		} {
			must(t, p.b.SetKeys(step.stays))
			must(t, p.d.SetKeys(step.leaves))
			p.same(t, fmt.Sprintf("%v to %v", step.stays, step.leaves), p.known.bytes(t))
		}
		must(t, p.b.SetKeys(nodekey.Keys{keyA}))
		_, handed := p.stays.run(t, p.b, p.known.bytes(t))
		rawRow{name: "the former key", in: delivered(handed), verdict: drop, drop: "wrong-auth-tag"}.check(t, p.leaves, p.d)
	})
}

// TestKeysAreThereFromTheStart: an agent takes over with other keys, and a trace shows
// the transmitted packet.
func TestKeysAreThereFromTheStart(t *testing.T) {
	n, c := newNet(t), config()
	c.Auth.Keys = nodekey.Keys{keyB, keyA}
	d := n.open(t, c)
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	in := packet{src: clients[false], dst: vips[false], flags: "A"}.bytes(t)
	by := func(k nodekey.Key) {
		t.Helper()
		_, out := n.run(t, d, in)
		if l := unload(t, out); !bytes.Equal(l.tag, l.of.Tag(k)) {
			t.Errorf("tag %x, want that of %s", l.tag, k)
		}
	}
	by(keyB)
	must(t, d.Close())
	c.Auth.Keys = nodekey.Keys{keyA}
	d = n.open(t, c)
	by(keyA)
	must(t, d.SetKeys(nodekey.Keys{keyB}))
	by(keyB)
	must(t, d.Close())
	c.Auth.Keys = nil
	d = n.open(t, c)
	if _, out := n.run(t, d, in); unload(t, out).tag != nil {
		t.Errorf("without keys: %x", out)
	}
	if err := d.SetKeys(nodekey.Keys{keyA}); err == nil {
		t.Error("keys where there were none: no error")
	}
}
