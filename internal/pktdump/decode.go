// Package pktdump describes frames in text, layer by layer, including tunnels and the
// Fairlead option. It does not validate, but reports where it could not continue.
package pktdump

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Numbers of the Fairlead option (bpf/include/option.h) and of GUE on its default port.
const (
	optionV4 = 0x9e
	optionV6 = 0x1e
	guePort  = 6080
	// tagSize is the size of the tag that may end a list (bpf/include/auth.h).
	tagSize = 8
)

// Line describes a frame in one line.
func Line(frame []byte) string { return strings.Join(Lines(frame), "; ") }

// Lines describes a frame, one line per layer.
func Lines(frame []byte) []string {
	w := &words{}
	w.layers(frame, layers.LayerTypeEthernet)
	return w.lines
}

type words struct{ lines []string }

func (w *words) say(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// layers decodes from a layer of a given type.
func (w *words) layers(b []byte, first gopacket.Decoder) {
	p := gopacket.NewPacket(b, first, gopacket.DecodeOptions{NoCopy: true, Lazy: false})
	all := p.Layers()
	for i, l := range all {
		if u, ok := l.(*layers.UDP); ok && u.DstPort == guePort {
			w.udp(u)
			w.gue(u.Payload)
			return
		}
		if !w.layer(l) && i == len(all)-1 {
			w.rest(l)
		}
	}
	if err := p.ErrorLayer(); err != nil {
		w.say("cannot be read on: %v", err.Error())
	}
}

// layer describes a layer, and reports whether it knows its type.
func (w *words) layer(l gopacket.Layer) bool {
	if len(l.LayerContents()) == 0 {
		return false // layers that could not be decoded are included
	}
	switch l := l.(type) {
	case *layers.Ethernet:
		w.say("Ethernet %s > %s", l.SrcMAC, l.DstMAC)
	case *layers.Dot1Q:
		w.say("VLAN %d", l.VLANIdentifier)
	case *layers.IPv4:
		w.ipv4(l)
	case *layers.IPv6:
		w.say("IPv6 %s > %s, hop limit %d, %s, %d bytes", l.SrcIP, l.DstIP, l.HopLimit, l.NextHeader, 40+int(l.Length))
	case *layers.IPv6Destination:
		for _, o := range l.Options {
			w.option(o.OptionType, optionV6, o.OptionData, 16)
		}
	case *layers.IPv6Fragment:
		w.say("fragment %#x at %d%s", l.Identification, int(l.FragmentOffset)*8, more(l.MoreFragments))
	case *layers.TCP:
		w.say("TCP %d > %d [%s] seq %d ack %d, %d bytes of data", l.SrcPort, l.DstPort, tcpFlags(l), l.Seq, l.Ack, len(l.Payload))
	case *layers.UDP:
		w.udp(l)
	case *layers.SCTP:
		w.say("SCTP %d > %d", l.SrcPort, l.DstPort)
	case *layers.ICMPv4:
		w.say("ICMP %s", l.TypeCode)
		w.embedded(l.Payload, layers.LayerTypeIPv4, l.TypeCode.Type() == layers.ICMPv4TypeDestinationUnreachable ||
			l.TypeCode.Type() == layers.ICMPv4TypeTimeExceeded)
	case *layers.ICMPv6:
		w.say("ICMPv6 %s", l.TypeCode)
		if len(l.Payload) >= 4 {
			w.embedded(l.Payload[4:], layers.LayerTypeIPv6, l.TypeCode.Type() < 128)
		}
	default:
		return false
	}
	return true
}

// embedded describes the packet that an ICMP error refers to.
func (w *words) embedded(b []byte, t gopacket.LayerType, isError bool) {
	if !isError {
		return
	}
	inner := &words{}
	p := gopacket.NewPacket(b, t, gopacket.NoCopy)
	for _, l := range p.Layers() {
		inner.layer(l)
	}
	if len(b) >= 28 && len(inner.lines) == 1 && t == layers.LayerTypeIPv4 {
		header := int(b[0]&15) * 4
		if len(b) >= header+4 {
			inner.say("ports %d > %d", binary.BigEndian.Uint16(b[header:]), binary.BigEndian.Uint16(b[header+2:]))
		}
	}
	w.say("about %s", strings.Join(inner.lines, "; "))
}

func (w *words) ipv4(l *layers.IPv4) {
	w.say("IPv4 %s > %s, TTL %d, %s, %d bytes", l.SrcIP, l.DstIP, l.TTL, l.Protocol, l.Length)
	if l.FragOffset > 0 || l.Flags&layers.IPv4MoreFragments != 0 {
		w.say("fragment %#x at %d%s", l.Id, int(l.FragOffset)*8, more(l.Flags&layers.IPv4MoreFragments != 0))
	}
	for _, o := range l.Options {
		if o.OptionType > 1 { // neither end of options nor padding
			w.option(o.OptionType, optionV4, o.OptionData, 4)
		}
	}
}

func more(more bool) string {
	if more {
		return ", more follow"
	}
	return ", the last"
}

func (w *words) udp(l *layers.UDP) {
	w.say("UDP %d > %d, %d bytes of data", l.SrcPort, l.DstPort, len(l.Payload))
}

// option describes an option of an IP header: ours is a list of endpoints with addresses of
// size bytes.
func (w *words) option(kind, ours byte, data []byte, size int) {
	if kind == ours {
		w.say("Fairlead option: %s", endpoints(data, size))
	} else if kind > 1 {
		w.say("option %d, %d bytes", kind, len(data))
	}
}

func endpoints(data []byte, size int) string {
	var all []string
	tag := ""
	if end := len(data) - tagSize; end >= 0 && len(data)%(size+2) == tagSize%(size+2) {
		data, tag = data[:end], fmt.Sprintf(", tag by key %02x", data[end])
	}
	for len(data) >= size+2 {
		addr, _ := netip.AddrFromSlice(data[:size])
		all = append(all, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[size:])).String())
		data = data[size+2:]
	}
	if len(all) == 0 {
		return "empty" + tag
	}
	return strings.Join(all, ", then ") + tag
}

// gue decodes a GUE header, version 0: hlen words after the first, the first of which
// belongs to our chain.
func (w *words) gue(b []byte) {
	if len(b) < 4 || b[0]>>6 != 0 {
		w.say("GUE that cannot be read")
		return
	}
	words, proto := int(b[0]&31), layers.IPProtocol(b[1])
	if len(b) < 4+4*words {
		w.say("GUE, cut off")
		return
	}
	w.say("GUE %s", proto)
	if private := b[4 : 4+4*words]; len(private) >= 4 && private[0] == optionV4 {
		w.say("Fairlead chain: %s", chain(private))
	}
	switch proto {
	case layers.IPProtocolIPv4:
		w.layers(b[4+4*words:], layers.LayerTypeIPv4)
	case layers.IPProtocolIPv6:
		w.layers(b[4+4*words:], layers.LayerTypeIPv6)
	}
}

// chain describes as many endpoints as the chain's header says.
func chain(private []byte) string {
	n, tag, data := int(private[1]), int(private[2])*4, private[4:]
	for _, size := range []int{16, 4} {
		if used := n*(size+2) + tag; used > 0 && len(data) >= used && len(data) < used+4 {
			return endpoints(data[:used], size)
		}
	}
	return "empty"
}

// rest reports trailing bytes without a known layer.
func (w *words) rest(l gopacket.Layer) {
	switch l.(type) {
	case *gopacket.Payload, gopacket.Payload, *gopacket.Fragment, *gopacket.DecodeFailure:
		return
	}
	w.say("%s", l.LayerType())
}

func tcpFlags(l *layers.TCP) string {
	var set []string
	for _, f := range []struct {
		on   bool
		name string
	}{{l.SYN, "SYN"}, {l.ACK, "ACK"}, {l.FIN, "FIN"}, {l.RST, "RST"}, {l.PSH, "PSH"}, {l.URG, "URG"}} {
		if f.on {
			set = append(set, f.name)
		}
	}
	return strings.Join(set, " ")
}
