package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/lab/testkit"
)

// putUnderPressure puts a frontend under pressure.
func putUnderPressure(t testing.TB, d *DataPlane, k service.Key) { setPressure(t, d, k, true, true) }

func setPressure(t testing.TB, d *DataPlane, k service.Key, guarded, checked bool) {
	t.Helper()
	must(t, d.prepareSYN())
	d.mu.Lock()
	defer d.mu.Unlock()
	must(t, d.setActive(d.programmed[k], guarded, checked))
}

// tcpSeg is a segment with everything that matters here.
type tcpSeg struct {
	src, dst string
	tcp      layers.TCP
	payload  string
	v6       bool
	vlan     uint16
	options4 []layers.IPv4Option
}

// frame encodes it with another library's encoders.
func (s tcpSeg) frame(t testing.TB) []byte {
	t.Helper()
	src, dst := netip.MustParseAddrPort(s.src), netip.MustParseAddrPort(s.dst)
	tcp := s.tcp
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(src.Port()), layers.TCPPort(dst.Port())
	var ip gopacket.NetworkLayer
	var out gopacket.SerializableLayer
	ethertype := layers.EthernetTypeIPv4
	if src.Addr().Is6() {
		ethertype = layers.EthernetTypeIPv6
		l := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
		ip, out = l, l
	} else {
		l := &layers.IPv4{
			Version: 4, Id: 7, Flags: layers.IPv4DontFragment, TTL: 64, Protocol: layers.IPProtocolTCP,
			SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(), Options: s.options4,
		}
		ip, out = l, l
	}
	must(t, tcp.SetNetworkLayerForChecksum(ip))
	b := append(append([]byte(nil), macEth0...), macGateway...)
	if s.vlan != 0 {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, 0x8100), s.vlan)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(ethertype))
	return append(b, encode(t, out, &tcp, gopacket.Payload(s.payload))...)
}

// parsed decodes an output frame and verifies its lengths and checksums.
func parsed(t testing.TB, frame []byte) (s tcpSeg) {
	t.Helper()
	l3 := 14
	if binary.BigEndian.Uint16(frame[12:]) == 0x8100 {
		s.vlan = binary.BigEndian.Uint16(frame[14:])
		l3 = 18
	}
	if a := dissect(frame[l3:]); !a.whole || !a.headerOK || !a.l4OK {
		t.Fatalf("lengths or checksums are wrong: %+v\n%x", a, frame)
	}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP: %v", p)
	}
	flow := p.NetworkLayer().NetworkFlow()
	src, _ := netip.AddrFromSlice(flow.Src().Raw())
	dst, _ := netip.AddrFromSlice(flow.Dst().Raw())
	s.src, s.dst = netip.AddrPortFrom(src, uint16(tcp.SrcPort)).String(), netip.AddrPortFrom(dst, uint16(tcp.DstPort)).String()
	s.tcp, s.payload, s.v6 = *tcp, string(tcp.Payload), src.Is6()
	return s
}

// option returns an option's data, and whether it is present.
func (s tcpSeg) option(kind layers.TCPOptionKind) ([]byte, bool) {
	for _, o := range s.tcp.Options {
		if o.OptionType == kind {
			return o.OptionData, true
		}
	}
	return nil, false
}

func (s tcpSeg) flags() (out string) {
	for name, set := range map[string]bool{"S": s.tcp.SYN} {
		if set {
			out += name
		}
	}
	if s.tcp.ACK {
		out += "A"
	}
	if s.tcp.RST {
		out += "R"
	}
	if s.tcp.FIN {
		out += "F"
	}
	return out
}

func words32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func mssOption(n uint16) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, n)}
}

func scaleOption(n byte) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{n}}
}

func timestamps(value, echo uint32) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: words32(value, echo)}
}

func sackOption(edges ...uint32) layers.TCPOption {
	return layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: uint8(2 + 4*len(edges)), OptionData: words32(edges...)}
}

var (
	sackPermitted = layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2}
	nop           = layers.TCPOption{OptionType: layers.TCPOptionKindNop}
)

// exchangeSeg sends a frame, and returns the output, with this verdict.
func (n *testNet) exchangeSeg(t *testing.T, d *DataPlane, s tcpSeg, want verdict) tcpSeg {
	t.Helper()
	v, out := n.run(t, d, s.frame(t))
	if v != want {
		t.Fatalf("%s to %s %s: %v, %v", s.src, s.dst, s.flags(), v, d.Describe().Drops)
	}
	if v == drop || v == pass {
		return tcpSeg{}
	}
	return parsed(t, out)
}

// cookieClient is a client whose connection a cookie opens.
type cookieClient struct {
	*testing.T
	net      *testNet
	d        *DataPlane
	src, vip string
	isn      uint32
	options  []layers.TCPOption
}

// newCookieClient returns a client of a fullnat frontend under pressure.
func newCookieClient(t *testing.T) *cookieClient {
	t.Helper()
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	putUnderPressure(t, d, f.Key)
	return &cookieClient{t, n, d, clients[false], vips[false], 1000, nil}
}

func (c *cookieClient) send(s tcpSeg, want verdict) tcpSeg {
	c.Helper()
	s.src, s.dst = c.src, c.vip
	return c.net.exchangeSeg(c.T, c.d, s, want)
}

// syn sends its SYN and returns the SYN-ACK.
func (c *cookieClient) syn() tcpSeg {
	c.Helper()
	back := c.send(tcpSeg{tcp: layers.TCP{SYN: true, Seq: c.isn, Window: 64240, Options: c.options}}, redirect)
	if back.src != c.vip || back.dst != c.src || back.flags() != "SA" || back.tcp.Ack != c.isn+1 || back.tcp.Window != 0 {
		c.Fatalf("the SYN is answered by %s to %s: %s, ack %d, window %d", back.src, back.dst, back.flags(), back.tcp.Ack, back.tcp.Window)
	}
	return back
}

// Each connection opened by a cookie: each side sees what the other has sent, with its
// own numbers.
func TestCookiesOpenConnections(t *testing.T) {
	// Numbers that wrap.
	isn, serverISN := uint32(0xfffffff0), uint32(0x80000000)
	tsClient, tsSent := uint32(1000), uint32(0xfffffffe)
	for name, options := range map[string][]layers.TCPOption{
		"all options": {mssOption(1400), sackPermitted, timestamps(tsClient, 0), nop, scaleOption(9)},
		"none":        nil,
		"scale alone": {mssOption(1460), nop, scaleOption(0)},
		"timestamps":  {mssOption(9000), nop, nop, timestamps(tsClient, 0)},
		"odd places":  {nop, mssOption(1220), timestamps(tsClient, 0), scaleOption(14), sackPermitted},
	} {
		for _, method := range natMethods {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, v6 %v", name, method, v6), func(t *testing.T) {
					n := newNet(t)
					d := n.open(t, config())
					f := frontend(method, vips[v6], service.TCP, servers[v6])
					upsert(t, d, f)
					putUnderPressure(t, d, f.Key)
					c := &cookieClient{t, n, d, clients[v6], vips[v6], isn, options}
					back := c.syn()
					k := back.tcp.Seq
					has := func(kind layers.TCPOptionKind) bool {
						_, ok := tcpSeg{tcp: layers.TCP{Options: options}}.option(kind)
						return ok
					}
					for _, kind := range []layers.TCPOptionKind{layers.TCPOptionKindSACKPermitted, layers.TCPOptionKindTimestamps, layers.TCPOptionKindWindowScale} {
						if _, ok := back.option(kind); ok != has(kind) {
							t.Errorf("the SYN-ACK has option %v: %v, the SYN %v", kind, ok, has(kind))
						}
					}
					mss, _ := back.option(layers.TCPOptionKindMSS)
					if want := map[bool]uint16{false: 1460, true: 1440}[v6]; binary.BigEndian.Uint16(mss) != want {
						t.Errorf("the SYN-ACK says MSS %v, want %d", mss, want)
					}
					ts := has(layers.TCPOptionKindTimestamps)
					var ours uint32
					if ts {
						data, _ := back.option(layers.TCPOptionKindTimestamps)
						ours = binary.BigEndian.Uint32(data)
						if echo := binary.BigEndian.Uint32(data[4:]); echo != tsClient {
							t.Errorf("it echoes %d", echo)
						}
					}
					with := func(value, echo uint32, more ...layers.TCPOption) []layers.TCPOption {
						if !ts {
							return more
						}
						return append([]layers.TCPOption{nop, nop, timestamps(value, echo)}, more...)
					}

					// The ACK: a SYN for the backend, with the
					// client's options.
					first := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: isn + 1, Ack: k + 1, Window: 500, Options: with(tsClient+5, ours)}}, redirect)
					if first.dst != servers[v6] || first.flags() != "S" || first.tcp.Seq != isn {
						t.Fatalf("the server gets %s, seq %d, at %s", first.flags(), first.tcp.Seq, first.dst)
					}
					if method == service.NAT && first.src != c.src {
						t.Errorf("from %s", first.src)
					}
					for _, kind := range []layers.TCPOptionKind{layers.TCPOptionKindSACKPermitted, layers.TCPOptionKindTimestamps, layers.TCPOptionKindWindowScale} {
						if _, ok := first.option(kind); ok != has(kind) {
							t.Errorf("the SYN to the server has option %v: %v", kind, ok)
						}
					}
					scale, scales := first.option(layers.TCPOptionKindWindowScale)
					if want, _ := (tcpSeg{tcp: layers.TCP{Options: options}}).option(layers.TCPOptionKindWindowScale); scales && scale[0] != want[0] {
						t.Errorf("it has scale %v, the client %v", scale, want)
					}
					asked, _ := tcpSeg{tcp: layers.TCP{Options: options}}.option(layers.TCPOptionKindMSS)
					got, _ := first.option(layers.TCPOptionKindMSS)
					if most := append(asked, 2, 24)[:2]; binary.BigEndian.Uint16(got) > binary.BigEndian.Uint16(most) {
						t.Errorf("the server gets MSS %v, the client had %v", got, most)
					}
					// Data that arrives before the backend has
					// accepted sends the SYN again.
					if again := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: isn + 1, Ack: k + 1, Options: with(tsClient+6, ours)}, payload: "x"}, redirect); again.flags() != "S" {
						t.Errorf("before the server has accepted it gets %s", again.flags())
					}

					// Its SYN-ACK: a window update for the client.
					server := func(s tcpSeg, want verdict) tcpSeg {
						t.Helper()
						s.src, s.dst = servers[v6], first.src
						return n.exchangeSeg(t, d, s, want)
					}
					accept := []layers.TCPOption{mssOption(1460)}
					if has(layers.TCPOptionKindSACKPermitted) {
						accept = append(accept, sackPermitted)
					}
					if ts {
						accept = append(accept, timestamps(tsSent, tsClient+5))
					}
					if scales {
						accept = append(accept, nop, scaleOption(5)) // not ours
					}
					synAck := tcpSeg{tcp: layers.TCP{SYN: true, ACK: true, Seq: serverISN, Ack: isn + 1, Window: 28960, Options: accept}}
					update := server(synAck, redirect)
					wantWindow := uint16(28960)
					if scales {
						wantWindow >>= 7
					}
					if update.src != c.vip || update.dst != c.src || update.flags() != "A" || update.tcp.Seq != k+1 || update.tcp.Ack != isn+1 || update.tcp.Window != wantWindow {
						t.Errorf("the client gets %s of %s, seq %d, ack %d, window %d", update.flags(), update.src, update.tcp.Seq-k, update.tcp.Ack-isn, update.tcp.Window)
					}
					if data, ok := update.option(layers.TCPOptionKindTimestamps); ok != ts || ts && binary.BigEndian.Uint32(data) != ours {
						t.Errorf("its timestamps: %v", data)
					}

					// Both directions from now on.
					forth := c.send(tcpSeg{payload: "request", tcp: layers.TCP{
						ACK: true, PSH: true, Seq: isn + 1, Ack: k + 1 + 100, Window: 77,
						Options: with(tsClient+9, ours+3, nop, nop, sackOption(k+1+200, k+1+300)),
					}}, redirect)
					if forth.tcp.Seq != isn+1 || forth.tcp.Ack != serverISN+1+100 || forth.tcp.Window != 77 || forth.payload != "request" {
						t.Errorf("the server gets seq %d, ack %d, window %d, %q", forth.tcp.Seq, forth.tcp.Ack-serverISN, forth.tcp.Window, forth.payload)
					}
					if data, _ := forth.option(layers.TCPOptionKindSACK); string(data) != string(words32(serverISN+1+200, serverISN+1+300)) {
						t.Errorf("and SACK %x", data)
					}
					if data, _ := forth.option(layers.TCPOptionKindTimestamps); ts && string(data) != string(words32(tsClient+9, tsSent+3)) {
						t.Errorf("and timestamps %x", data)
					}
					answer := server(tcpSeg{payload: "response", tcp: layers.TCP{
						ACK: true, Seq: serverISN + 1, Ack: isn + 8, Window: 1000,
						Options: with(tsSent+20, tsClient+9, nop, nop, sackOption(isn+9, isn+12)),
					}}, redirect)
					wantWindow = 1000
					if scales {
						wantWindow = 1000 << 5 >> 7
					}
					if answer.tcp.Seq != k+1 || answer.tcp.Ack != isn+8 || answer.tcp.Window != wantWindow || answer.payload != "response" {
						t.Errorf("the client gets seq %d, ack %d, window %d, %q", answer.tcp.Seq-k, answer.tcp.Ack-isn, answer.tcp.Window, answer.payload)
					}
					if data, _ := answer.option(layers.TCPOptionKindSACK); string(data) != string(words32(isn+9, isn+12)) {
						t.Errorf("and SACK %x, which is about its own data", data)
					}
					if data, _ := answer.option(layers.TCPOptionKindTimestamps); ts && string(data) != string(words32(ours+20, tsClient+9)) {
						t.Errorf("and timestamps %x", data)
					}
					// A backend that waits for its ACK repeats the
					// SYN-ACK.
					if done := server(synAck, redirect); done.dst != servers[v6] || done.flags() != "A" || done.tcp.Seq != isn+1 || done.tcp.Ack != serverISN+1 {
						t.Errorf("the server that repeats its SYN-ACK gets %s, seq %d, ack %d", done.flags(), done.tcp.Seq-isn, done.tcp.Ack-serverISN)
					}
					// The connection ends as usual.
					fin := c.send(tcpSeg{tcp: layers.TCP{ACK: true, FIN: true, Seq: isn + 8, Ack: k + 9, Options: with(tsClient+10, ours+20)}}, redirect)
					if fin.tcp.Ack != serverISN+9 || !fin.tcp.FIN {
						t.Errorf("the FIN: %s, ack %d", fin.flags(), fin.tcp.Ack-serverISN)
					}
					counts := synCountsOf(t, d, f.Key)
					if counts.CookiesSent != 1 || counts.CookiesAccepted != 1 || counts.CookiesRejected != 0 || !counts.Guarded {
						t.Errorf("counted %+v", counts)
					}
				})
			}
		}
	}
}

func synCountsOf(t testing.TB, d *DataPlane, k service.Key) dataplane.SYNCounts {
	t.Helper()
	all, err := d.Counters()
	must(t, err)
	for _, c := range all {
		if c.Key == k {
			return c.SYN
		}
	}
	t.Fatalf("no counters of %s", k)
	return dataplane.SYNCounts{}
}

// slotNS is SYN_SLOT_SHIFT.
const slotNS = 1 << 35

// later advances the programs' wall clock.
func later(t testing.TB, d *DataPlane, by time.Duration) {
	t.Helper()
	var v bpf.BalancerSynSettings
	must(t, d.kernel.SynSet.Get(&v))
	v.Wall += uint64(by)
	must(t, d.kernel.SynSet.Set(v))
}

// An invalid cookie opens nothing: one that is forged, another's, old, or made by another
// load balancer with another key. Its sender gets a RST.
func TestInvalidCookies(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *cookieClient, ack *layers.TCP){
		"forged":           func(_ *testing.T, _ *cookieClient, ack *layers.TCP) { ack.Ack = 0x12345678 },
		"one bit":          func(_ *testing.T, _ *cookieClient, ack *layers.TCP) { ack.Ack ^= 1 << 20 },
		"other options":    func(_ *testing.T, _ *cookieClient, ack *layers.TCP) { ack.Ack ^= 1 << 9 },
		"another sequence": func(_ *testing.T, _ *cookieClient, ack *layers.TCP) { ack.Seq++ },
		"another port": func(_ *testing.T, c *cookieClient, _ *layers.TCP) {
			a := netip.MustParseAddrPort(c.src)
			c.src = netip.AddrPortFrom(a.Addr(), a.Port()+1).String()
		},
		"two slots old": func(t *testing.T, c *cookieClient, _ *layers.TCP) { later(t, c.d, 2*slotNS) },
		"another key": func(t *testing.T, c *cookieClient, _ *layers.TCP) {
			must(t, c.d.SetCookieKeys(CookieKey{1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCookieClient(t)
			k := c.syn().tcp.Seq
			ack := layers.TCP{ACK: true, Seq: 1001, Ack: k + 1}
			spoil(t, c, &ack)
			rst := c.send(tcpSeg{tcp: ack}, redirect)
			if rst.flags() != "R" || rst.tcp.Seq != ack.Ack || rst.dst != c.src {
				t.Errorf("answered by %s, seq %#x, to %s", rst.flags(), rst.tcp.Seq, rst.dst)
			}
			if got := c.d.Describe().Drops["syn-cookie"]; got != 1 {
				t.Errorf("%d are counted as syn-cookie", got)
			}
			if all, err := c.d.Remembered(); err != nil || all != 0 {
				t.Errorf("%d flows are remembered: %v", all, err)
			}
		})
	}
}

// A cookie is valid in its slot, the next, and the one before because clocks differ, and
// with either of two keys during a key change.
func TestValidCookies(t *testing.T) {
	old, fresh := CookieKey{1}, CookieKey{2}
	for name, change := range map[string]func(t *testing.T, d *DataPlane){
		"at once":                          func(*testing.T, *DataPlane) {},
		"a slot later":                     func(t *testing.T, d *DataPlane) { later(t, d, slotNS) },
		"another clock":                    func(t *testing.T, d *DataPlane) { later(t, d, -slotNS) },
		"a second key":                     func(t *testing.T, d *DataPlane) { must(t, d.SetCookieKeys(fresh, old)) },
		"no longer guarded":                func(t *testing.T, d *DataPlane) { setPressure(t, d, synTestKey, false, true) },
		"only a probe of the window comes": func(*testing.T, *DataPlane) {},
		"a second key first":               func(t *testing.T, d *DataPlane) { must(t, d.SetCookieKeys(old, fresh)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCookieClient(t)
			must(t, c.d.SetCookieKeys(old))
			k := c.syn().tcp.Seq
			change(t, c.d)
			seq := uint32(1001)
			if name == "only a probe of the window comes" {
				seq--
			}
			if to := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: seq, Ack: k + 1}}, redirect); to.flags() != "S" || to.tcp.Seq != 1000 {
				t.Errorf("the server gets %s, seq %d", to.flags(), to.tcp.Seq)
			}
		})
	}
}

var synTestKey = service.Key{
	VIP: netip.MustParseAddrPort(vips[false]).Addr(), Port: netip.MustParseAddrPort(vips[false]).Port(), Protocol: service.TCP,
}

// A cookie of one load balancer is valid at another with its key, and the connection is
// opened there.
func TestCookiesOfAnotherBalancer(t *testing.T) {
	n := newNet(t)
	f := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	key := CookieKey{7, 7, 7}
	var cookie uint32
	for i := range 2 {
		c := config()
		c.PinDir += fmt.Sprint(i)
		d := n.open(t, c)
		upsert(t, d, f)
		putUnderPressure(t, d, f.Key)
		must(t, d.SetCookieKeys(key))
		client := &cookieClient{t, n, d, clients[false], vips[false], 1000, nil}
		if i == 0 {
			cookie = client.syn().tcp.Seq
		} else if to := client.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: cookie + 1}}, redirect); to.flags() != "S" {
			t.Errorf("the server gets %s", to.flags())
		}
		testkit.Do(t, n.balancer, d.Detach)
	}
	n.current = nil
}

// The protection outlives the agent: sent cookies stay valid, the connections that they
// opened continue, sources stay validated, and the pressure is unchanged.
func TestProtectionOutlivesTheAgent(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	f.SYNProtection = service.SYNAuto
	dsr := frontend(service.Tunnel, "10.1.1.1:81", service.TCP, servers[false])
	dsr.SYNProtection = service.SYNAuto
	upsert(t, d, f)
	upsert(t, d, dsr)
	putUnderPressure(t, d, f.Key)
	putUnderPressure(t, d, dsr.Key)
	c := &cookieClient{t, n, d, clients[false], vips[false], 1000, nil}
	k := c.syn().tcp.Seq
	first := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: k + 1}}, redirect)
	n.exchangeSeg(t, d, tcpSeg{src: servers[false], dst: first.src, tcp: layers.TCP{SYN: true, ACK: true, Seq: 5000, Ack: 1001}}, redirect)
	later := &cookieClient{t, n, d, "192.168.0.77:7", vips[false], 1000, nil}
	sent := later.syn().tcp.Seq
	validated := &cookieClient{t, n, d, clients[false], "10.1.1.1:81", 99, nil}
	validate(t, validated)

	must(t, d.Close())
	d = n.open(t, config())
	for _, c := range []*cookieClient{c, later, validated} {
		c.d = d
	}
	if to := c.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: k + 1}, payload: "data"}, redirect); to.tcp.Ack != 5001 || to.payload != "data" {
		t.Errorf("the connection continues with %s, ack %d", to.flags(), to.tcp.Ack)
	}
	if to := later.send(tcpSeg{tcp: layers.TCP{ACK: true, Seq: 1001, Ack: sent + 1}}, redirect); to.flags() != "S" {
		t.Errorf("a cookie that was sent before brings the server %s", to.flags())
	}
	if v, _ := n.run(t, d, tcpSeg{src: validated.src, dst: validated.vip, tcp: layers.TCP{SYN: true, Seq: 8}}.frame(t)); v != redirect {
		t.Errorf("the SYN of a validated source: %v", v)
	}
	upsert(t, d, f) // no change
	if got := synCountsOf(t, d, f.Key); !got.Guarded {
		t.Error("the frontend is under pressure no longer")
	}
}

// validate proves a client's existence.
func validate(t *testing.T, c *cookieClient) {
	t.Helper()
	back := c.send(tcpSeg{tcp: layers.TCP{SYN: true, Seq: c.isn}}, redirect)
	if back.src != c.vip || back.dst != c.src || back.flags() != "SA" {
		t.Fatalf("the SYN is answered by %s of %s to %s", back.flags(), back.src, back.dst)
	}
	if below := c.isn - back.tcp.Ack; below < 1 || below > 1<<16 {
		t.Errorf("the challenge acknowledges %d below what the client has sent, want 1 to 2^16", below)
	}
	c.send(tcpSeg{tcp: layers.TCP{RST: true, Seq: back.tcp.Ack}}, drop)
}
