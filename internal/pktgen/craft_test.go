package pktgen

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/pktdump"
)

var (
	client4, vip4 = netip.MustParseAddrPort("192.0.2.7:1234"), netip.MustParseAddrPort("10.1.1.1:80")
	client6, vip6 = netip.MustParseAddrPort("[2001:db8::7]:1234"), netip.MustParseAddrPort("[2001:db8:1::1]:80")
)

// TestFrame checks frames with an independent decoder.
func TestFrame(t *testing.T) {
	for _, c := range []struct {
		p    Packet
		want string // the end
	}{
		{Packet{From: client4, To: vip4, Protocol: "tcp", Flags: []string{"syn"}},
			"IPv4 192.0.2.7 > 10.1.1.1, TTL 64, TCP, 40 bytes; TCP 1234 > 80 [SYN] seq 1 ack 1, 0 bytes of data"},
		{Packet{From: client4, To: vip4, Protocol: "tcp", Payload: 9, TTL: 3, VLAN: 12},
			"VLAN 12; IPv4 192.0.2.7 > 10.1.1.1, TTL 3, TCP, 49 bytes; TCP 1234 > 80 [ACK] seq 1 ack 1, 9 bytes of data"},
		{Packet{From: client6, To: vip6, Protocol: "udp", Payload: 10},
			"IPv6 2001:db8::7 > 2001:db8:1::1, hop limit 64, UDP, 58 bytes; UDP 1234 > 80, 10 bytes of data"},
		{Packet{From: client4, To: vip4, Protocol: "sctp", Opens: true}, "SCTP, 52 bytes; SCTP 1234 > 80; SCTPInit"},
		{Packet{From: client4, To: vip4, Protocol: "udp", Fragment: true, More: true, Payload: 8},
			"UDP, 36 bytes; fragment 0x4642 at 0, more follow"},
		{Packet{From: client6, To: vip6, Protocol: "udp", Fragment: true, Offset: 16, Payload: 8},
			"IPv6Fragment, 56 bytes; fragment 0x4642 at 16, the last"},
		{Packet{From: client4, To: vip4, Protocol: "icmp", ICMP: "echo"}, "ICMPv4, 28 bytes; ICMP EchoRequest"},
		{Packet{From: client6, To: vip6, Protocol: "icmp", ICMP: "echo"}, "ICMPv6, 48 bytes; ICMPv6 EchoRequest"},
		{Packet{From: client4, To: vip4, Protocol: "icmp", ICMP: "too-big", About: netip.MustParseAddrPort("198.51.100.9:5")},
			"ICMP DestinationUnreachable(FragmentationNeeded); about IPv4 10.1.1.1 > 198.51.100.9, TTL 60, TCP, 40 bytes; TCP 80 > 5 [ACK] seq 1 ack 1, 0 bytes of data"},
		{Packet{From: client6, To: vip6, Protocol: "icmp", ICMP: "too-big"},
			"ICMPv6 PacketTooBig; about IPv6 2001:db8:1::1 > 2001:db8::7, hop limit 60, TCP, 60 bytes; TCP 80 > 1234 [ACK] seq 1 ack 1, 0 bytes of data"},
	} {
		b, err := c.p.Frame()
		if err != nil {
			t.Errorf("%+v: %v", c.p, err)
			continue
		}
		if got := pktdump.Line(b); !strings.Contains(got, c.want) {
			t.Errorf("%+v:\n got %s\nwant %s", c.p, got, c.want)
		}
	}
}

func TestCheckNamesTheField(t *testing.T) {
	good := Packet{From: client4, To: vip4, Protocol: "tcp"}
	for want, change := range map[string]func(*Packet){
		"from, to: give both": func(p *Packet) { p.To = netip.AddrPort{} },
		"not of one family":   func(p *Packet) { p.To = vip6 },
		`protocol: "gre"`:     func(p *Packet) { p.Protocol = "gre" },
		`flags: "ECE"`:        func(p *Packet) { p.Flags = []string{"ECE"} },
		"flags: udp has none": func(p *Packet) { p.Protocol, p.Flags = "udp", []string{"SYN"} },
		"payload: 70000":      func(p *Packet) { p.Payload = 70000 },
		"ttl: 256":            func(p *Packet) { p.TTL = 256 },
		"vlan: 4095":          func(p *Packet) { p.VLAN = 4095 },
		"fragment: 7":         func(p *Packet) { p.Offset = 7 },
		`icmp: "redirect"`:    func(p *Packet) { p.ICMP = "redirect" },
	} {
		p := good
		change(&p)
		if _, err := p.Frame(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
