package xdp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/testkit"
)

// The reference implementation of the whole program: the in-memory data plane decides
// which backend a packet goes to and which others may know it, and this file writes the
// expected output frame byte by byte from the documentation only. It shares no code with
// the program, nor with the encoders of the other tests.

// shot is one packet of a flow, as the client sends it.
type shot struct {
	schedule.Flow
	opens    bool
	ttl, tos byte
	payload  []byte
	noCheck  bool // UDP over IPv4 without a checksum
}

// header is an IP header to be written.
type header struct {
	src, dst netip.Addr
	proto    byte
	ttl, tos byte
	id       uint16
	label    uint32
	option   []netip.AddrPort
}

// endpointList writes the Fairlead option's list.
func endpointList(list []netip.AddrPort) (b []byte) {
	for _, e := range list {
		b = append(b, e.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, e.Port())
	}
	return b
}

// put writes the header before its payload.
func (h header) put(payload []byte) []byte {
	list := endpointList(h.option)
	if h.src.Is6() {
		if len(list) > 0 {
			ext := append([]byte{h.proto, 0, 0x1e, byte(len(list))}, list...)
			switch short := (8 - len(ext)%8) % 8; {
			case short == 1:
				ext = append(ext, 0) // Pad1
			case short > 1:
				ext = append(ext, 1, byte(short-2)) // PadN
				ext = append(ext, make([]byte, short-2)...)
			}
			ext[1] = byte(len(ext)/8 - 1)
			h.proto, payload = 60, append(ext, payload...)
		}
		b := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(h.tos)<<20|h.label)
		b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
		b = append(b, h.proto, h.ttl)
		b = append(append(b, h.src.AsSlice()...), h.dst.AsSlice()...)
		return append(b, payload...)
	}
	var options []byte
	if len(list) > 0 {
		options = append([]byte{0x9e, byte(2 + len(list))}, list...)
		for len(options)%4 != 0 {
			options = append(options, 0)
		}
	}
	b := []byte{byte(0x45 + len(options)/4), h.tos, 0, 0, byte(h.id >> 8), byte(h.id), 0x40, 0, h.ttl, h.proto, 0, 0}
	b = append(append(b, h.src.AsSlice()...), h.dst.AsSlice()...)
	b = append(b, options...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[10:], sum16(b))
	return append(b, payload...)
}

// segment writes the transport header, with its checksum, and the payload.
func (s shot) segment(src, dst netip.AddrPort) []byte {
	b := binary.BigEndian.AppendUint16(nil, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	at := 0
	sum := func(b []byte) {
		pseudo := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(b)))
		pseudo = append(pseudo, 0, 0, 0, byte(s.Protocol))
		check := sum16(pseudo, b)
		if s.Protocol == service.UDP && check == 0 {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(b[at:], check)
	}
	switch s.Protocol {
	case service.TCP:
		flags := byte(0x10)
		if s.opens {
			flags = 0x02
		}
		b = append(b, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 0x20, 0, 0, 0, 0, 0)
		at = 16
	case service.UDP:
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(s.payload)))
		b = append(b, 0, 0)
		at = 6
	case service.SCTP:
		chunk := byte(0) // DATA
		if s.opens {
			chunk = 1 // INIT
		}
		b = append(b, 1, 2, 3, 4, 0, 0, 0, 0, chunk, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(s.payload)))
		sum = func(b []byte) {
			binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		}
	}
	b = append(b, s.payload...)
	if !s.noCheck {
		sum(b)
	}
	return b
}

// ip writes the packet between any two ends.
func (s shot) ip(src, dst netip.AddrPort, ttl byte, option []netip.AddrPort) []byte {
	h := header{
		src: src.Addr(), dst: dst.Addr(), proto: byte(s.Protocol), ttl: ttl, tos: s.tos,
		id: 0x1234, label: 0xabcde, option: option,
	}
	return h.put(s.segment(src, dst))
}

func (s shot) vip() netip.AddrPort { return netip.AddrPortFrom(s.VIP, s.Port) }

func ethernet(to, from net.HardwareAddr, ip []byte) []byte {
	b := append(append([]byte(nil), to...), from...)
	if ip[0]>>4 == 6 {
		return append(append(b, 0x86, 0xdd), ip...)
	}
	return append(append(b, 0x08, 0x00), ip...)
}

// in is the frame as the client's router sends it.
func (s shot) in() []byte {
	return ethernet(macEth0, macGateway, s.ip(s.Client, s.vip(), s.ttl, nil))
}

// option is the option in the packet's own header (dsr-nat, dr): the VIP, and those that
// may know the flow; nothing if neither matters.
func (s shot) option(d fake.Decision) []netip.AddrPort {
	if !s.opens && s.Protocol != service.UDP && len(d.Older) == 0 {
		return nil
	}
	return append([]netip.AddrPort{s.vip()}, d.Older...)
}

// out is the expected IP packet. got is the actual one, used only for values that depend
// on a secret: fullnat's source port, and the number by which routers spread the tunnels
// of tracked flows.
func (s shot) out(f desired.Frontend, d fake.Decision, got []byte) []byte {
	own := own4
	if d.Server.Addr().Is6() {
		own = own6
	}
	switch f.Method {
	case service.NAT:
		return s.ip(s.Client, d.Server, s.ttl-1, nil)
	case service.FullNAT:
		at := 14 + 20
		if own.Is6() {
			at = 14 + 40
		}
		return s.ip(netip.AddrPortFrom(own, binary.BigEndian.Uint16(got[at:])), d.Server, s.ttl-1, nil)
	case service.DSRNAT:
		return s.ip(s.Client, d.Server, s.ttl-1, s.option(d))
	case service.DR:
		if f.Survival != service.SecondChance {
			return s.ip(s.Client, s.vip(), s.ttl-1, nil)
		}
		return s.ip(s.Client, s.vip(), s.ttl-1, s.option(d))
	}
	return s.tunnelled(f, d, own, got)
}

// spread is the number that spreads a flow's tunnel: in IPv6 the flow label, with GUE
// also the source port.
func (s shot) spread(f desired.Frontend, own netip.Addr, got []byte) (label uint32, port uint16) {
	hash := schedule.Hash(s.Flow)
	label, port = hash&0xfffff, uint16(49152+hash&0x3fff)
	if f.Survival != service.FlowTable {
		return label, port
	}
	at := 14 + 20
	if own.Is6() {
		label, at = binary.BigEndian.Uint32(got[14:])&0xfffff, 14+40
	}
	if got := binary.BigEndian.Uint16(got[at:]); got >= 49152 {
		port = got
	}
	return label, port
}

func (s shot) tunnelled(f desired.Frontend, d fake.Decision, own netip.Addr, got []byte) []byte {
	inner := s.ip(s.Client, s.vip(), s.ttl, nil)
	proto := byte(4)
	if s.VIP.Is6() {
		proto = 41
	}
	label, port := s.spread(f, own, got)
	h := header{src: own, dst: d.Server.Addr(), proto: proto, ttl: 63, tos: s.tos, label: label}
	if f.Encapsulation == service.IPIP {
		h.option = d.Older
		return h.put(inner)
	}
	var list []byte
	if len(d.Older) > 0 {
		list = append([]byte{0x9e, byte(len(d.Older)), 0, 0}, endpointList(d.Older)...)
		for len(list)%4 != 0 {
			list = append(list, 0)
		}
	}
	gue := append([]byte{byte(len(list) / 4), proto, 0, 0}, list...)
	udp := binary.BigEndian.AppendUint16(nil, port)
	udp = binary.BigEndian.AppendUint16(udp, 6080)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(gue)+len(inner)))
	h.proto = 17
	return h.put(append(append(append(udp, 0, 0), gue...), inner...))
}

// kind is a frontend without its backends.
type kind struct {
	method        service.Method
	encapsulation service.Encapsulation
	survival      service.Survival
	protocol      service.Protocol
	vip6, server6 bool
}

func (k kind) String() string {
	family := map[bool]string{false: "IPv4", true: "IPv6"}
	return fmt.Sprintf("%s %s %s %s %s to %s", k.method, k.encapsulation, k.survival, k.protocol, family[k.vip6], family[k.server6])
}

// kinds are all kinds with the maglev scheduler.
func kinds() (all []kind) {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		for _, vip6 := range []bool{false, true} {
			for _, survival := range service.Survivals {
				for _, e := range service.Encapsulations {
					all = append(all, kind{service.Tunnel, e, survival, protocol, vip6, vip6}, kind{service.Tunnel, e, survival, protocol, vip6, !vip6})
				}
				all = append(all, kind{service.DSRNAT, "", survival, protocol, vip6, vip6}, kind{service.DR, "", survival, protocol, vip6, vip6})
			}
			for _, m := range []service.Method{service.NAT, service.FullNAT} {
				all = append(all, kind{m, "", service.FlowTable, protocol, vip6, vip6})
			}
		}
	}
	return all
}

// neighbors are the backends of these tests, on eth0's segment.
const neighbors = 9

func neighborMAC(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 2, byte(i)} }

func neighborAddr(i int, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0xfd, 15: byte(0x20 + i)})
	}
	return netip.AddrFrom4([4]byte{172, 16, 0, byte(0x20 + i)})
}

func (n *testNet) neighbors(t *testing.T) {
	testkit.Do(t, n.balancer, func() error {
		for i := range neighbors {
			for _, v6 := range []bool{false, true} {
				neighbor(t, n.eth0, neighborAddr(i, v6).String(), neighborMAC(i))
			}
		}
		return nil
	})
}

// frontend returns a frontend of this kind. SCTP's and dr's backends listen at the VIP's
// own port.
func (k kind) frontend(rng *rand.Rand) desired.Frontend {
	vip := netip.MustParseAddrPort(vips[k.vip6])
	f := desired.Frontend{
		Key:    service.Key{VIP: vip.Addr(), Port: vip.Port(), Protocol: k.protocol},
		Method: k.method, Encapsulation: k.encapsulation, Scheduler: service.Maglev, RingSize: 251, Survival: k.survival,
	}
	for i := range 3 {
		f.Backends = append(f.Backends, k.backend(i, rng))
	}
	return f
}

func (k kind) backend(i int, rng *rand.Rand) service.Backend {
	port := uint16(8080)
	if k.protocol == service.SCTP || k.method == service.DR {
		port = netip.MustParseAddrPort(vips[k.vip6]).Port()
	}
	return service.Backend{Addr: netip.AddrPortFrom(neighborAddr(i, k.server6), port), Weight: 1 + rng.Uint32N(3)}
}

// change adds, drains or removes a backend, or changes a weight.
func (k kind) change(f *desired.Frontend, rng *rand.Rand) {
	i := rng.IntN(neighbors)
	b := k.backend(i, rng)
	var others []service.Backend
	here := false
	for _, o := range f.Backends {
		if o.Addr == b.Addr {
			here = true
			continue
		}
		others = append(others, o)
	}
	if here && rng.IntN(2) == 0 {
		b.Weight = 0
	}
	if here && rng.IntN(6) == 0 && len(others) > 0 {
		f.Backends = others
		return
	}
	f.Backends = service.SortBackends(append(others, b))
}

// shot returns a packet of one of a few flows.
func (k kind) shot(f desired.Frontend, rng *rand.Rand) shot {
	client := netip.MustParseAddr(addrOf(clients[k.vip6]))
	s := shot{
		Flow: schedule.Flow{Client: netip.AddrPortFrom(client, uint16(2000+rng.IntN(500))), Key: f.Key},
		ttl:  byte(2 + rng.IntN(254)), tos: byte(rng.Uint32()),
		opens:   k.protocol != service.UDP && rng.IntN(3) == 0,
		payload: make([]byte, []int{0, 1, 4 + rng.IntN(100), rng.IntN(1200)}[rng.IntN(4)]),
		noCheck: k.protocol == service.UDP && !k.vip6 && rng.IntN(4) == 0,
	}
	for i := range s.payload {
		s.payload[i] = byte(rng.Uint32())
	}
	return s
}

// Every kind of frontend, through random changes of its backends, processes every packet
// like the reference implementation, to the byte.
func TestEveryByteAsTheTwin(t *testing.T) {
	n := newNet(t)
	n.neighbors(t)
	d := n.open(t, config())
	packets, chains := 0, 0
	for i, k := range kinds() {
		t.Run(k.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			twin := fake.New()
			f := k.frontend(rng)
			for range 12 {
				upsert(t, d, f)
				must(t, twin.Upsert(f))
				for range 25 {
					chains += n.compare(t, d, twin, f, k.shot(f, rng))
					packets++
				}
				k.change(&f, rng)
			}
			must(t, d.Delete(f.Key))
		})
	}
	t.Logf("%d packets, %d with chains", packets, chains)
	if packets > 10000 && chains < packets/20 {
		t.Errorf("only %d of %d packets had a chain", chains, packets)
	}
}

// compare sends a packet through both and returns how many had a chain.
func (n *testNet) compare(t *testing.T, d *DataPlane, twin *fake.DataPlane, f desired.Frontend, s shot) int {
	t.Helper()
	in := s.in()
	v, got := n.run(t, d, in)
	decision, err := twin.Forward(s.Flow, s.opens, len(in)-14)
	if err != nil {
		if v != drop {
			t.Fatalf("%v, opens %v: the twin says %v; verdict %v:\n%s", s.Flow, s.opens, err, v, hex.Dump(got))
		}
		return 0
	}
	if v != redirect {
		t.Fatalf("%v, opens %v: verdict %v, not to %v", s.Flow, s.opens, v, decision)
	}
	server := decision.Server.Addr().AsSlice()
	mac := neighborMAC(int(server[len(server)-1]) - 0x20)
	if want := ethernet(mac, macEth0, s.out(f, decision, got)); !bytes.Equal(got, want) {
		t.Fatalf("%v, opens %v, to %v:\n in %s\ngot %s\nwant %s", s.Flow, s.opens, decision, hex.Dump(in), hex.Dump(got), hex.Dump(want))
	}
	return min(1, len(decision.Older))
}
