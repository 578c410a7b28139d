package xdp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// row is one packet through the real program.
type row struct {
	name    string
	in      packet
	verdict verdict
	// out changes the received packet to the expected output; nil for none.
	out func(*packet)
	// drop is the counted reason.
	drop string
}

// outcome runs the real program on a frame, checks the verdict and the counted reason,
// and returns the output.
func (n *testNet) outcome(t *testing.T, d *DataPlane, name string, in []byte, want verdict, reason string) []byte {
	t.Helper()
	before := d.Describe().Drops
	got, out := n.run(t, d, in)
	if got != want {
		t.Errorf("%s: verdict %v, want %v", name, got, want)
	}
	for why, count := range d.Describe().Drops {
		if added := count - before[why]; added != 0 != (why == reason) {
			t.Errorf("%s: drop reason %q counted %d, want %q", name, why, added, reason)
		}
	}
	return out
}

func (r row) check(t *testing.T, n *testNet, d *DataPlane) {
	t.Helper()
	out := n.outcome(t, d, r.name, r.in.bytes(t), r.verdict, r.drop)
	if r.verdict == drop {
		return
	}
	want := r.in
	if r.out != nil {
		r.out(&want)
	}
	if wantBytes := want.bytes(t); !bytes.Equal(out, wantBytes) {
		t.Errorf("%s:\n got %s\nwant %s", r.name, hex.Dump(out), hex.Dump(wantBytes))
	}
}

// sent expects that a packet left to the gateway.
func sent(p *packet) {
	p.from, p.to = macEth0, macGateway
	switch {
	case p.outer != nil:
		p.outer.ttl--
	case p.ttl == 0:
		p.ttl = 63
	default:
		p.ttl--
	}
}

// label is the flow label of a tunnel: the flow's hash.
func label(in packet) uint32 {
	protocol := service.TCP
	if in.udp {
		protocol = service.UDP
	}
	dst := netip.MustParseAddrPort(in.dst)
	return schedule.Hash(schedule.Flow{
		Client: netip.MustParseAddrPort(in.src),
		Key:    service.Key{VIP: dst.Addr(), Port: dst.Port(), Protocol: protocol},
	}) & 0xfffff
}

// The addresses of the rows, by family.
var (
	clients = map[bool]string{false: "192.168.0.2:40000", true: "[2001:db8::2]:40000"}
	vips    = map[bool]string{false: "10.1.1.1:80", true: "[2001:db8:1::1]:80"}
	servers = map[bool]string{false: "172.16.5.1:8080", true: "[fd05::1]:8080"}
	owns    = map[bool]string{false: "172.16.0.2", true: "fd00::2"}
)

func addrOf(endpoint string) string { return netip.MustParseAddrPort(endpoint).Addr().String() }

// inKinds are the packets with which every forwarding mode is tested.
func inKinds(v6 bool) map[string]packet {
	base := packet{src: clients[v6], dst: vips[v6]}
	with := func(change func(*packet)) packet {
		p := base
		change(&p)
		return p
	}
	kinds := map[string]packet{
		"SYN":         with(func(p *packet) { p.flags = "S" }),
		"ACK":         with(func(p *packet) { p.flags, p.payload = "A", 101 }),
		"FIN":         with(func(p *packet) { p.flags = "FA" }),
		"RST":         with(func(p *packet) { p.flags = "R" }),
		"marked":      with(func(p *packet) { p.flags, p.tos = "S", 0xb9 }),
		"TTL 2":       with(func(p *packet) { p.flags, p.ttl = "S", 2 }),
		"UDP":         with(func(p *packet) { p.udp, p.payload = true, 33 }),
		"UDP, empty":  with(func(p *packet) { p.udp = true }),
		"UDP, TTL 99": with(func(p *packet) { p.udp, p.ttl, p.payload = true, 99, 1000 }),
	}
	if !v6 {
		kinds["UDP, no checksum"] = with(func(p *packet) { p.udp, p.noCheck, p.payload = true, true, 20 })
	}
	return kinds
}

func both(t *testing.T, d *DataPlane, f desired.Frontend) {
	t.Helper()
	for _, f.Protocol = range []service.Protocol{service.TCP, service.UDP} {
		upsert(t, d, f)
	}
}

func TestTunnel(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, inner6 := range []bool{false, true} {
		for _, outer6 := range []bool{false, true} {
			both(t, d, frontend(service.Tunnel, vips[inner6], 0, servers[outer6]))
			for name, in := range inKinds(inner6) {
				row{name: fmt.Sprintf("%s, inner v6 %v, outer v6 %v", name, inner6, outer6), in: in, verdict: redirect, out: func(p *packet) {
					p.outer = &outer{src: owns[outer6], dst: addrOf(servers[outer6]), ttl: 64, label: label(in)}
					sent(p)
				}}.check(t, n, d)
			}
		}
	}
}

func TestDSRNAT(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(service.DSRNAT, vips[v6], 0, servers[v6]))
		for name, in := range inKinds(v6) {
			row{name: fmt.Sprintf("%s, v6 %v", name, v6), in: in, verdict: redirect, out: func(p *packet) {
				p.dst = servers[v6]
				if in.udp || in.flags == "S" {
					p.option = vips[v6]
				}
				sent(p)
			}}.check(t, n, d)
		}
	}
}

// pickFlow returns a client whose slot matches.
func pickFlow(t *testing.T, d *DataPlane, f desired.Frontend, want func(ring.Slot) bool) string {
	t.Helper()
	slots := d.rings.Slots(d.programmed[f.Key].ring())
	client := netip.MustParseAddrPort(clients[f.VIP.Is6()]).Addr()
	for port := uint16(1024); port < 60000; port++ {
		c := netip.AddrPortFrom(client, port)
		if want(schedule.Maglev(slots, schedule.Flow{Client: c, Key: f.Key})) {
			return c.String()
		}
	}
	t.Fatal("no flow has such a slot")
	return ""
}

func TestSecondChance(t *testing.T) {
	second := map[bool]string{false: "172.16.5.2:8081", true: "[fd05::2]:8081"}
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		for _, far6 := range []bool{false, true} {
			f := frontend(service.Tunnel, vips[v6], service.TCP, servers[far6], second[far6])
			upsert(t, d, f)
			f.Backends[1].Weight = 0
			upsert(t, d, f)
			older := packet{src: pickFlow(t, d, f, func(s ring.Slot) bool { return s.Older[0] != 0 }), dst: vips[v6], payload: 10}
			tunnelled := outer{src: owns[far6], dst: addrOf(servers[far6]), ttl: 64, label: label(older)}
			row{name: "tunnel, older flow", in: older, verdict: redirect, out: func(p *packet) {
				p.outer = &tunnelled
				p.outer.option = second[far6]
				sent(p)
			}}.check(t, n, d)
			fresh := older
			fresh.flags = "S"
			row{name: "tunnel, new flow", in: fresh, verdict: redirect, out: func(p *packet) {
				p.outer = &outer{src: owns[far6], dst: addrOf(servers[far6]), ttl: 64, label: label(older)}
				sent(p)
			}}.check(t, n, d)
		}
		f := frontend(service.DSRNAT, vips[v6], service.TCP, servers[v6], second[v6])
		f.Backends[1].Weight = 0
		upsert(t, d, f)
		older := packet{src: pickFlow(t, d, f, func(s ring.Slot) bool { return s.Older[0] != 0 }), dst: vips[v6], payload: 10}
		row{name: "dsr-nat, older flow", in: older, verdict: redirect, out: func(p *packet) {
			p.dst, p.option = servers[v6], vips[v6]+" "+second[v6]
			sent(p)
		}}.check(t, n, d)
		fresh := older
		fresh.flags = "S"
		row{name: "dsr-nat, new flow", in: fresh, verdict: redirect, out: func(p *packet) {
			p.dst, p.option = servers[v6], vips[v6]
			sent(p)
		}}.check(t, n, d)
		f.Backends[0].Weight = 0
		upsert(t, d, f)
		row{name: "all drain, new flow", in: fresh, verdict: drop, drop: "no-backend"}.check(t, n, d)
		row{name: "all drain, older flow", in: older, verdict: redirect, out: func(p *packet) {
			slots := d.rings.Slots(d.programmed[f.Key].ring())
			slot := schedule.Maglev(slots, schedule.Flow{Client: netip.MustParseAddrPort(older.src), Key: f.Key})
			p.dst = d.servers.addrOf(slot.Older[0]).String()
			p.option = vips[v6] + " " + d.servers.addrOf(slot.Older[1]).String()
			sent(p)
		}}.check(t, n, d)
	}
}

// Any UDP packet may belong to an older flow: it lists the backends that may have it, and
// comes back to the slot's first if none does.
func TestUDPComesBack(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := frontend(service.Tunnel, vips[false], service.UDP, "172.16.5.1:53", "172.16.5.2:53")
	f.Backends[1].Weight = 0
	upsert(t, d, f)
	in := packet{src: pickFlow(t, d, f, func(s ring.Slot) bool { return s.Older[0] != 0 }), dst: vips[false], udp: true}
	row{name: "UDP", in: in, verdict: redirect, out: func(p *packet) {
		p.outer = &outer{src: owns[false], dst: "172.16.5.1", ttl: 64, option: "172.16.5.2:53 172.16.5.1:53"}
		sent(p)
	}}.check(t, n, d)
}

func TestMTU(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	const tcp4, udp4, tcp6 = 40, 28, 60 // headers
	both(t, d, frontend(service.Tunnel, vips[false], 0, servers[false]))
	both(t, d, frontend(service.DSRNAT, "10.1.1.1:81", 0, servers[false]))
	both(t, d, frontend(service.FullNAT, "10.1.1.1:82", 0, servers[false]))
	both(t, d, frontend(service.Tunnel, vips[true], 0, servers[true]))
	direct := func(p *packet) { p.dst = servers[false]; sent(p) }
	for _, r := range []row{
		{name: "tunnel, just fits", in: packet{src: clients[false], dst: vips[false], payload: 1480 - tcp4}, verdict: redirect, out: func(p *packet) {
			p.outer = &outer{src: owns[false], dst: addrOf(servers[false]), ttl: 64}
			sent(p)
		}},
		{name: "tunnel, a byte too many", in: packet{src: clients[false], dst: vips[false], payload: 1481 - tcp4}},
		{name: "tunnel, IPv6, a byte too many", in: packet{src: clients[true], dst: vips[true], payload: 1461 - tcp6}},
		{name: "dsr-nat, full segment", in: packet{src: clients[false], dst: "10.1.1.1:81", payload: 1500 - tcp4}, verdict: redirect, out: direct},
		{name: "dsr-nat, full SYN", in: packet{src: clients[false], dst: "10.1.1.1:81", flags: "S", payload: 1500 - tcp4}},
		{name: "dsr-nat, datagram with option", in: packet{src: clients[false], dst: "10.1.1.1:81", udp: true, payload: 1492 - udp4}, verdict: redirect, out: func(p *packet) {
			p.option = "10.1.1.1:81"
			direct(p)
		}},
		{name: "dsr-nat, datagram with no room for it", in: packet{src: clients[false], dst: "10.1.1.1:81", udp: true, payload: 1493 - udp4}, verdict: redirect, out: direct},
		{name: "dsr-nat, datagram too big", in: packet{src: clients[false], dst: "10.1.1.1:81", udp: true, payload: 1501 - udp4}},
		{name: "fullnat, too big", in: packet{src: clients[false], dst: "10.1.1.1:82", payload: 1501 - tcp4}},
	} {
		if r.verdict != 0 {
			r.check(t, n, d)
			continue
		}
		// The sender is informed of the MTU that fits.
		frame := r.in.bytes(t)
		mtu := map[string]uint32{"tunnel, a byte too many": 1480, "tunnel, IPv6, a byte too many": 1460, "dsr-nat, full SYN": 1492}[r.name]
		if mtu == 0 {
			mtu = 1500
		}
		answer := tooBig(t, frame, addrOf(r.in.dst), addrOf(r.in.src), mtu)
		rawRow{name: r.name, in: frame, verdict: redirect, out: answer, drop: "too-big"}.check(t, n, d)
	}
}

// Next hops other than eth0's gateway.
func TestWays(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for port, server := range map[string]string{
		"80": "172.16.0.9:80", "81": "172.17.0.3:80", "82": "172.31.0.1:80", "83": "172.16.0.2:80",
	} {
		upsert(t, d, frontend(service.Tunnel, "10.1.1.1:"+port, service.TCP, server))
	}
	upsert(t, d, frontend(service.DSRNAT, "10.1.1.1:84", service.TCP, "172.16.0.9:8080"))
	upsert(t, d, frontend(service.DSRNAT, "[2001:db8:1::1]:84", service.TCP, "[fd00::9]:8080"))
	in := func(port string) packet { return packet{src: clients[false], dst: "10.1.1.1:" + port} }
	to := func(server string) func(*packet) {
		return func(p *packet) { p.outer = &outer{src: owns[false], dst: server, ttl: 64} }
	}
	rows := []row{
		{name: "the kernel asks for the neighbor", in: in("80"), verdict: pass, out: to("172.16.0.9")},
		{name: "an interface that is not ours", in: in("81"), verdict: pass, out: to("172.17.0.3")},
		{name: "unreachable", in: in("82"), verdict: drop, drop: "no-route"},
		{name: "a server on this host", in: in("83"), verdict: pass, out: to("172.16.0.2")},
		{name: "dsr-nat up the kernel", in: in("84"), verdict: pass, out: func(p *packet) { p.dst = "172.16.0.9:8080" }},
		{name: "dsr-nat up the kernel, IPv6", in: packet{src: clients[true], dst: "[2001:db8:1::1]:84"}, verdict: pass,
			out: func(p *packet) { p.dst = "[fd00::9]:8080" }},
	}
	for _, r := range rows {
		r.check(t, n, d)
	}
	must(t, d.Close())
	c := config()
	c.Interfaces = append(c.Interfaces, "eth1")
	d = n.open(t, c)
	rows[1] = row{name: "an interface of ours", in: in("81"), verdict: redirect, out: func(p *packet) {
		to("172.17.0.3")(p)
		sent(p)
		p.from, p.to = macEth1, macServer1
	}}
	for _, r := range rows {
		r.check(t, n, d)
	}
}

// edit returns a frame with other bytes at some offset.
func edit(frame []byte, at int, b ...byte) []byte {
	frame = slices.Clone(frame)
	copy(frame[at:], b)
	return frame
}

func TestMalformed(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	tcp4 := packet{src: clients[false], dst: vips[false], payload: 20}.bytes(t)
	udp4 := packet{src: clients[false], dst: vips[false], udp: true, payload: 20}.bytes(t)
	tcp6 := packet{src: clients[true], dst: vips[true], payload: 20}.bytes(t)
	frames := map[string][]byte{
		"IPv4 total length beyond the frame":   edit(tcp4, 16, 0, 61),
		"IPv4 total length below the headers":  edit(tcp4, 16, 0, 27),
		"IPv4 total length zero":               edit(tcp4, 16, 0, 0),
		"IPv6 payload length beyond the frame": edit(tcp6, 18, 0, 41),
		"IPv6 payload length zero":             edit(tcp6, 18, 0, 0),
		"TCP offset below five":                edit(tcp4, 14+20+12, 0x40),
		"TCP offset beyond the packet":         edit(tcp4, 14+20+12, 0xb0),
		"TCP offset beyond the packet, IPv6":   edit(tcp6, 14+40+12, 0xf0),
		"UDP length beyond the packet":         edit(udp4, 14+20+4, 0, 29),
		"UDP length below eight":               edit(udp4, 14+20+4, 0, 7),
		"cut in the payload":                   tcp4[:len(tcp4)-1],
	}
	for _, method := range service.Methods {
		for _, v6 := range []bool{false, true} {
			server := servers[v6]
			if method == service.DR { // keeps the port
				server = netip.AddrPortFrom(netip.MustParseAddr(addrOf(server)), netip.MustParseAddrPort(vips[v6]).Port()).String()
			}
			both(t, d, frontend(method, vips[v6], 0, server))
		}
		for name, frame := range frames {
			before := d.Describe().Drops["malformed"]
			v, _ := n.run(t, d, frame)
			if counted := d.Describe().Drops["malformed"] - before; v != drop || counted != 1 {
				t.Errorf("%s: %s: %v, counted %d", method, name, v, counted)
			}
		}
	}
}

// A frame shorter than Ethernet's minimum arrives padded. The padding is not part of the
// packet.
func TestPadding(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	in := packet{src: clients[false], dst: vips[false]}
	v, out := n.run(t, d, append(in.bytes(t), make([]byte, 6)...))
	in.outer = &outer{src: owns[false], dst: addrOf(servers[false]), ttl: 64}
	sent(&in)
	want := in.bytes(t)
	if v != redirect || len(out) < len(want) || !bytes.Equal(out[:len(want)], want) {
		t.Errorf("%v\n got %s\nwant %s", v, hex.Dump(out), hex.Dump(want))
	}
}

func TestNoSource(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, servers[false]))
	upsert(t, d, frontend(service.FullNAT, "10.1.1.1:81", service.TCP, servers[false]))
	must(t, d.SetSources(netip.Addr{}, own6))
	for _, port := range []string{"80", "81"} {
		row{name: port, in: packet{src: clients[false], dst: "10.1.1.1:" + port}, verdict: drop, drop: "no-source"}.check(t, n, d)
	}
}
