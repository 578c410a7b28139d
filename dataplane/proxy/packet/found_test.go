package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/internal/pktgen"
)

// mapped puts an IPv4 frame's transport after an IPv6 header with the same addresses, as
// ::ffff:a.b.c.d.
func mapped(frame []byte) []byte {
	b := append(bytes.Clone(frame[:12]), 0x86, 0xdd, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(frame)-34))
	b = append(b, frame[23], 64)
	for _, at := range []int{26, 30} {
		b = append(append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff), frame[at:at+4]...)
	}
	return append(b, frame[34:]...)
}

// Linux rejects IPv6 packets with IPv4-mapped addresses. They must not match the IPv4
// flow with the same addresses, which otherwise anyone on an IPv6 network could end.
func TestMappedAddresses(t *testing.T) {
	w := newWorld(t)
	w.expose(false, "A", "A")
	client, vip, target := netip.AddrPortFrom(podCAddr, 4000), netip.AddrPortFrom(clusterIP, 80), netip.AddrPortFrom(podAAddr, 8080)
	w.pass("the flow", fromPodC, syn(client, vip), syn(client, target), untouched)
	reset := ack(client, vip)
	reset.Flags = []string{"RST"}
	for name, frame := range map[string][]byte{
		"an acknowledgement": mapped(w.frame(ack(client, vip))),
		"a reset":            mapped(w.frame(reset)),
		"of another flow":    mapped(w.frame(syn(netip.AddrPortFrom(podCAddr, 4001), vip))),
	} {
		for _, where := range []at{fromPodC, fromNetwork, toNetwork} {
			verdict, out := w.run(where, frame)
			if verdict != untouched || !bytes.Equal(out[12:], frame[12:]) {
				t.Errorf("%s, %v: verdict %d, changed to %x", name, where, verdict, out)
			}
		}
	}
}

// Impossible source addresses get no answer: answers to them would be sent from the
// service's address to a group, or to every host of a network.
func TestNobodyIsAnswered(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		sources := []string{"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255"}
		if v6 {
			sources = []string{"::", "::1", "ff02::1"}
		}
		vip, port := v6.of(clusterIP), netip.AddrPortFrom(v6.of(clusterIP), 80)
		for _, empty := range []bool{false, true} {
			w.expose(v6, "A", "A", func(f *proxy.Frontend) {
				if empty {
					f.Inside, f.Outside = proxy.Choice{}, proxy.Choice{}
				}
			})
			for _, from := range sources {
				client := netip.AddrPortFrom(ip(from), 4000)
				p := ack(client, port)
				if empty {
					p.Protocol, p.Flags = "udp", nil
				}
				if verdict, out := w.run(fromNetwork, w.frame(p)); verdict != dropped {
					w.t.Errorf("%s from %s to %s: verdict %d, answered %s", p.Protocol, from, vip, verdict, dump(out[12:]))
				}
			}
		}
	})
}

// The quote of a datagram is what was sent, including a checksum of all ones, the other
// form of zero.
func TestQuoteIsWhatWasSent(t *testing.T) {
	inWorld(t, func(w *world, v6 family) {
		w.expose(v6, "", "")
		frame := w.frame(pktgen.Packet{From: v6.at(clientAddr, 4000), To: v6.at(clusterIP, 80), Protocol: "udp", Payload: 10})
		udp := len(frame) - 18
		for _, check := range []uint16{0xffff, 0x1234, 0} {
			binary.BigEndian.PutUint16(frame[udp+6:], check)
			verdict, out := w.run(fromNetwork, frame)
			if quote := out[len(out)-(len(frame)-14):]; verdict != sent || !bytes.Equal(quote, frame[14:]) {
				w.t.Errorf("checksum %#x: verdict %d, quoted\n%x, not\n%x", check, verdict, quote, frame[14:])
			}
		}
	})
}
