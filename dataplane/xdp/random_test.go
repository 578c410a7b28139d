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
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/service"
)

// sum16 is the Internet checksum over parts (RFC 1071), each of even length
// but the last; 0 over what carries its own right checksum.
func sum16(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// anatomy is what a reader that trusts nothing finds in an IP packet.
type anatomy struct {
	length   int  // of the IP packet, at most what is there
	whole    bool // every length fits
	headerOK bool // IPv4's checksum
	l4OK     bool // the transport's checksum is right or absent; for tunnels the inner packet's
	ttl      byte
	src, dst netip.Addr
	proto    byte
	depth    int
}

// dissect reads an IP packet of any kind that the program takes or makes.
func dissect(b []byte) (a anatomy) {
	if len(b) < 20 {
		return a
	}
	var pseudo, body []byte
	switch b[0] >> 4 {
	case 4:
		header := int(b[0]&15) * 4
		a.length = int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || a.length < header || a.length > len(b) {
			return a
		}
		a.headerOK, a.ttl, a.proto = sum16(b[:header]) == 0, b[8], b[9]
		a.src, a.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		pseudo, body = bytes.Clone(b[12:20]), b[header:a.length]
	case 6:
		if len(b) < 40 {
			return a
		}
		a.length = 40 + int(binary.BigEndian.Uint16(b[4:]))
		if a.length > len(b) {
			return a
		}
		a.headerOK, a.ttl, a.proto = true, b[7], b[6]
		a.src, a.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		pseudo, body = bytes.Clone(b[8:40]), b[40:a.length]
		if a.proto == 60 && len(body) >= 8 && len(body) >= 8*(int(body[1])+1) {
			a.proto, body = body[0], body[8*(int(body[1])+1):]
		}
	default:
		return a
	}
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
	pseudo = append(pseudo, 0, 0, 0, a.proto)
	a.transport(pseudo, body)
	return a
}

func (a *anatomy) transport(pseudo, body []byte) {
	switch {
	case a.proto == 6 && len(body) >= 20:
		offset := int(body[12]>>4) * 4
		a.whole = offset >= 20 && offset <= len(body)
		a.l4OK = sum16(pseudo, body) == 0
	case a.proto == 132 && len(body) >= 12:
		a.whole = true
		sum := binary.LittleEndian.Uint32(body[8:])
		body = bytes.Clone(body)
		clear(body[8:12])
		a.l4OK = sum == crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	case a.proto == 17 && len(body) >= 12 && (a.src == own4 || a.src == own6) && binary.BigEndian.Uint16(body[2:]) == guePort:
		header := 12 + 4*int(body[8]&31)
		if int(binary.BigEndian.Uint16(body[4:])) != len(body) || header > len(body) {
			return
		}
		inner := dissect(body[header:])
		a.whole, a.l4OK, a.depth = inner.whole && inner.length == len(body)-header, inner.l4OK && inner.headerOK, inner.depth+1
	case a.proto == 17 && len(body) >= 8:
		// Summed over the IP packet's payload, as the program keeps it, even
		// where UDP's own length says less.
		length := int(binary.BigEndian.Uint16(body[4:]))
		a.whole = length >= 8 && length <= len(body)
		a.l4OK = sum16(pseudo, body) == 0 || body[6] == 0 && body[7] == 0
	case a.proto == 4 || a.proto == 41:
		inner := dissect(body)
		a.whole, a.l4OK, a.depth = inner.whole && inner.length == len(body), inner.l4OK && inner.headerOK, inner.depth+1
	}
}

// isOdd says that a frame is not for the plain eyes of dissect: tags, options,
// fragments, extension headers, ICMP.
func isOdd(frame []byte) bool {
	switch {
	case frame[12] == 8 && frame[13] == 0:
		return frame[14]&15 != 5 || frame[20]&0x3f != 0 || frame[21] != 0 || frame[23] == 1
	case frame[12] == 0x86 && frame[13] == 0xdd:
		return !slices.Contains([]byte{6, 17, 132}, frame[20])
	}
	return true
}

// wrongOdd says what is wrong with what has become of an odd frame, or with an
// answer to the sender: in all of them the headers must be right.
func wrongOdd(in, out []byte) error {
	in, out = untag(in), untag(out)
	was, is := in[14:], out[14:]
	switch {
	case is[0]>>4 == 4 && int(binary.BigEndian.Uint16(is[2:])) > len(is):
		return fmt.Errorf("%d bytes of IPv4 in %d", binary.BigEndian.Uint16(is[2:]), len(is))
	case is[0]>>4 == 6 && int(binary.BigEndian.Uint16(is[4:]))+40 > len(is):
		return fmt.Errorf("%d bytes of IPv6 payload in %d", binary.BigEndian.Uint16(is[4:]), len(is))
	case is[0]>>4 == 6:
		return nil
	}
	wasRight := was[0]>>4 == 6 || sum16(was[:int(was[0]&15)*4]) == 0
	if isRight := sum16(is[:int(is[0]&15)*4]) == 0; wasRight && !isRight {
		return fmt.Errorf("the IPv4 header's checksum was right and is wrong")
	}
	return nil
}

// isTooBig says that a frame is the answer to one that was too big.
func isTooBig(out []byte) bool {
	switch {
	case out[14]>>4 == 4:
		return out[23] == 1 && out[34] == 3 && out[35] == 4
	case out[14]>>4 == 6:
		return out[20] == 58 && out[54] == 2
	}
	return false
}

// wrongOut says what is wrong with a frame that the program has changed.
func wrongOut(in, out []byte, v verdict, reachable map[netip.Addr]bool) error {
	if isOdd(in) || isTooBig(out) {
		return wrongOdd(in, out)
	}
	was, is := dissect(in[14:]), dissect(out[14:])
	switch {
	case !was.whole:
		return fmt.Errorf("a malformed packet was sent on")
	case !is.whole:
		return fmt.Errorf("a malformed packet was made")
	case is.length > 1500 || is.length+14 > len(out):
		return fmt.Errorf("%d bytes of IP in a frame of %d", is.length, len(out))
	case is.depth > 0 && !is.headerOK && was.headerOK, is.depth == 0 && is.headerOK != was.headerOK:
		return fmt.Errorf("IPv4 checksum: right before %v, after %v", was.headerOK, is.headerOK)
	case is.depth > 0 && is.l4OK != (was.l4OK && was.headerOK), is.depth == 0 && is.l4OK != was.l4OK:
		return fmt.Errorf("checksum: right before %v, after %v", was.l4OK, is.l4OK)
	case is.ttl == 0 || v == redirect && is.depth == 0 && is.ttl != was.ttl-1:
		return fmt.Errorf("TTL %d became %d", was.ttl, is.ttl)
	case !reachable[is.dst]:
		return fmt.Errorf("sent to %s", is.dst)
	case v == redirect && (!bytes.Equal(out[:6], nextMAC(is)) || !bytes.Equal(out[6:12], macEth0)):
		return fmt.Errorf("sent with MAC addresses %x", out[:12])
	}
	return nil
}

// nextMAC is whom a packet goes to: only dr's are for a VIP.
func nextMAC(is anatomy) net.HardwareAddr {
	if isVIP := is.dst == netip.MustParseAddrPort(vips[is.dst.Is6()]).Addr(); isVIP {
		return neighbourMAC(1)
	}
	return macGateway
}

// mutate damages a frame in a few places, most in its headers.
func mutate(rng *rand.Rand, frame []byte) []byte {
	for range rng.IntN(4) {
		at := rng.IntN(len(frame))
		if rng.IntN(4) > 0 {
			at = rng.IntN(min(len(frame), 14+60))
		}
		switch rng.IntN(3) {
		case 0:
			frame[at] ^= 1 << rng.IntN(8)
		case 1:
			frame[at] = byte(rng.Uint32())
		case 2:
			frame[at] = []byte{0, 1, 0xff, 0x45, 0x60, 6, 17, 60, 4, 41}[rng.IntN(10)]
		}
	}
	switch rng.IntN(12) {
	case 0:
		return frame[:max(14, rng.IntN(len(frame)+1))]
	case 1:
		return append(frame, make([]byte, rng.IntN(64))...)
	}
	return frame
}

// randomKinds are the frontends that random packets meet, from port 80 on, each
// in both families and with every protocol.
var randomKinds = []struct {
	method        service.Method
	encapsulation service.Encapsulation
	scheduler     service.Scheduler
	backends      int
	drained       int  // so many of them
	aged          bool // each came at another time: chains of several
	other         bool // the servers are of the other family
	guarded       bool
}{
	{method: service.Tunnel, backends: 2},
	{method: service.DirectNAT, backends: 2},
	{method: service.FullNAT, backends: 1},
	{method: service.Tunnel, backends: 1, other: true},
	{method: service.DirectNAT, backends: 2, drained: 1},
	{method: service.Tunnel, backends: 2, drained: 1, scheduler: service.RoundRobin},
	{method: service.NAT, backends: 1},
	{method: service.DR, backends: 1},
	{method: service.Tunnel, encapsulation: service.GUE, backends: 2, guarded: true},
	{method: service.Tunnel, encapsulation: service.GUE, backends: 5, drained: 2, aged: true},
	{method: service.Tunnel, backends: 5, drained: 2, aged: true, guarded: true},
	{method: service.DirectNAT, backends: 5, drained: 2, aged: true},
	{method: service.Tunnel, backends: 5, aged: true, other: true, scheduler: service.PowerOfTwo},
}

// randomServer is the i-th server of all these.
func randomServer(i int, v6 bool) netip.Addr {
	host := netip.MustParseAddr(addrOf(servers[v6]))
	for range i {
		host = host.Next()
	}
	return host
}

// holdRandomKinds upserts them, and gives where packets may go.
func holdRandomKinds(t *testing.T, d *DataPlane) map[netip.Addr]bool {
	reachable := map[netip.Addr]bool{drainingPeers[false]: true, drainingPeers[true]: true}
	for _, v6 := range []bool{false, true} {
		vip := netip.MustParseAddrPort(vips[v6]).Addr()
		reachable[vip], reachable[netip.MustParseAddr(addrOf(clients[v6]))] = true, true
		for i := range 5 {
			reachable[randomServer(i, v6)] = true
		}
		for i, k := range randomKinds {
			port := uint16(80 + i)
			f := frontend(k.method, netip.AddrPortFrom(vip, port).String(), 0)
			f.Encapsulation = k.encapsulation
			if k.scheduler != "" {
				f.Scheduler = k.scheduler
			}
			for j := range k.backends {
				b := service.Backend{Addr: netip.AddrPortFrom(randomServer(j, v6 != k.other), 8000+port), Weight: 1}
				if k.method == service.DR {
					b.Addr = netip.AddrPortFrom(neighbourAddr(1, v6), port)
				}
				if j >= k.backends-k.drained {
					b.Weight = 0
				}
				if k.aged {
					b.Since = time.Unix(int64(1e9+3600*j), 0).UTC()
				}
				f.Backends = append(f.Backends, b)
			}
			if k.guarded {
				f.Deny = prefixes("192.168.0.128/25", "2001:db8::8000/113")
				f.Limits = service.Limits{ClientPackets: 1 << 20, Opens: 1 << 10}
			}
			for _, f.Protocol = range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
				upsert(t, d, f)
			}
		}
	}
	return reachable
}

// randomFrames are whole packets to the frontends, answers among them.
func randomFrames(t *testing.T, rng *rand.Rand, n *testNet, d *DataPlane) (frames [][]byte) {
	for i := range 1000 {
		v6 := i%2 == 0
		vip, client := netip.MustParseAddrPort(vips[v6]).Addr(), netip.MustParseAddr(addrOf(clients[v6]))
		kind, transport := rng.IntN(len(randomKinds)), rng.IntN(3)
		p := packet{
			src: netip.AddrPortFrom(client, uint16(1024+rng.IntN(9))).String(),
			dst: netip.AddrPortFrom(vip, uint16(80+kind)).String(),
			udp: transport == 0, sctp: transport == 1,
			flags: []string{"S", "A", "FA", "R", "SA", "PA"}[rng.IntN(6)], ttl: uint8(1 + rng.IntN(255)), tos: uint8(rng.Uint32()),
			payload: []int{0, 1, rng.IntN(100), rng.IntN(1430)}[rng.IntN(4)], noCheck: !v6 && rng.IntN(4) == 0,
		}
		frame := p.bytes(t)
		frames = append(frames, frame)
		_, out := n.run(t, d, frame)
		method := randomKinds[kind].method
		if len(out) != len(frame) || method != service.FullNAT && method != service.NAT {
			continue
		}
		answer := p
		answer.src = netip.AddrPortFrom(randomServer(0, v6), uint16(8080+kind)).String()
		answer.dst = p.src
		if method == service.FullNAT {
			ports := out[map[bool]int{false: 14 + 20, true: 14 + 40}[v6]:]
			answer.dst = netip.AddrPortFrom(netip.MustParseAddr(owns[v6]), binary.BigEndian.Uint16(ports)).String()
		}
		frames = append(frames, answer.bytes(t))
	}
	return frames
}

// drainingPeers are balancers that packets may be handed to and come from.
var drainingPeers = map[bool]netip.Addr{false: netip.MustParseAddr("172.18.0.66"), true: netip.MustParseAddr("fd18::66")}

// handedOver gives some of the frames as a draining balancer hands them on, with
// lists that end here and that go on.
func handedOver(t *testing.T, frames [][]byte) (handed [][]byte) {
	for i, frame := range frames {
		if i%8 != 0 {
			continue
		}
		v6 := i%16 == 0
		peer, own := drainingPeers[v6], netip.MustParseAddr(owns[v6])
		o := outer{src: peer.String(), dst: owns[v6], ttl: 60, option: netip.AddrPortFrom(own, 0).String()}
		if i%24 == 0 {
			o.option = netip.AddrPortFrom(peer, 0).String() + " " + o.option
		}
		proto := []byte{8, 0}
		if v6 {
			proto = []byte{0x86, 0xdd}
		}
		handed = append(handed, slices.Concat(frame[:12], proto, o.wrap(t, frame[14:], is6(frame), 0)))
	}
	return handed
}

// within gives what a frame carries that was handed over; any other as it is.
func within(frame []byte) []byte {
	ip := frame[14:]
	header, proto := 0, byte(0)
	switch {
	case is6(frame) && len(ip) > 48 && ip[6] == 60 && netip.AddrFrom16([16]byte(ip[24:40])) == own6:
		header, proto = 40+8*(int(ip[41])+1), ip[40]
	case !is6(frame) && len(ip) > 28 && ip[0] > 0x45 && netip.AddrFrom4([4]byte(ip[16:20])) == own4:
		header, proto = 4*int(ip[0]&15), ip[9]
	}
	switch {
	case header >= len(ip)-20:
	case proto == 4:
		return slices.Concat(frame[:12], []byte{8, 0}, ip[header:])
	case proto == 41:
		return slices.Concat(frame[:12], []byte{0x86, 0xdd}, ip[header:])
	}
	return frame
}

// fuzzPackets is how many random packets there are, and how long they may take:
// FAIRLEAD_FUZZ_PACKETS, without an end, or as many as a plain test has time for.
func fuzzPackets(t *testing.T) (int, time.Duration) {
	asked := os.Getenv("FAIRLEAD_FUZZ_PACKETS")
	if asked == "" {
		return 300_000, 20 * time.Second
	}
	n, err := strconv.Atoi(asked)
	if err != nil || n <= 0 {
		t.Fatalf("FAIRLEAD_FUZZ_PACKETS=%s: not a number of packets", asked)
	}
	return n, 24 * time.Hour
}

// Whatever comes in, the program makes no malformed packet, breaks no checksum
// and sends nothing where nothing belongs.
func TestRandomPackets(t *testing.T) {
	n := newNet(t)
	n.neighbours(t)
	c := config()
	c.MaxFrontends = 128
	d := n.open(t, c)
	rng := rand.New(rand.NewPCG(11, 12))
	reachable := holdRandomKinds(t, d)
	base := randomFrames(t, rng, n, d)
	base = append(base, handedOver(t, base)...)
	verdicts := map[verdict]int{}
	packets, limit := fuzzPackets(t)
	deadline := time.Now().Add(limit)
	done := 0
	opts := ebpf.RunOptions{}
	out := make([]byte, 4096)
	testkit.Do(t, n.balancer, func() error {
		for ; done < packets && time.Now().Before(deadline); done++ {
			if done%1000 == 0 { // others drain for every other thousand
				var peers []netip.Addr
				if done%2000 == 0 {
					peers = []netip.Addr{drainingPeers[false], drainingPeers[true]}
				}
				must(t, d.SetBalancers([]netip.Addr{drainingPeers[false], drainingPeers[true]}, peers))
			}
			in := mutate(rng, bytes.Clone(base[rng.IntN(len(base))]))
			opts.Data, opts.DataOut = in, out
			opts.Context = xdpMD{DataEnd: uint32(len(in)), IngressIfindex: n.eth0}
			code, err := d.kernel.Balancer.Run(&opts)
			if err != nil {
				return fmt.Errorf("%w: %x", err, in)
			}
			v := verdict(code)
			verdicts[v]++
			untouched := v == pass && bytes.Equal(in, opts.DataOut)
			if !untouched && !bytes.Equal(in[:6], macEth0) {
				t.Fatalf("verdict %v on a frame for another host:\n%s", v, hex.Dump(in))
			}
			if v == drop || untouched {
				continue
			}
			if v != redirect && v != pass {
				t.Fatalf("verdict %v:\n%s", v, hex.Dump(in))
			}
			inner := within(in)
			reachable[dissect(inner[14:]).src] = true // answers, though it be a damaged address
			if err := wrongOut(inner, opts.DataOut, v, reachable); err != nil {
				t.Fatalf("packet %d, %v: %v\n in %s\nout %s", done, v, err, hex.Dump(in), hex.Dump(opts.DataOut))
			}
		}
		return nil
	})
	t.Logf("%d packets: %v; %v", done, verdicts, d.Describe().Drops)
	if done < min(packets, 300_000)/20 {
		t.Errorf("only %d packets in %v", done, limit)
	}
	for _, v := range []verdict{drop, pass, redirect} {
		if verdicts[v] < done/100 {
			t.Errorf("%v only %d times", v, verdicts[v])
		}
	}
}
