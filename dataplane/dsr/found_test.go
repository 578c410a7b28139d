package dsr

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// sum16 sums a header as 16-bit words.
func sum16(b []byte) (sum uint32) {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return sum
}

// An IPv4 header that arrives with a wrong checksum leaves with the same error, although
// its list is removed or shortened: the next host must drop it.
func TestBrokenHeadersStayBroken(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP), entry(service.DSRNAT, vip, pod, service.TCP))
	older := servers(second, 3)
	for name, w := range map[string]wire{
		"taken off":               {client: client, dst: pod, flags: "S", option: list{vip}},
		"shortened":               {client: client, dst: pod, option: append(list{vip}, older...)},
		"shortened in a tunnel":   {client: client, dst: vip, tunnel: pod.Addr(), tunnelOption: older},
		"shortened within GUE":    {client: client, dst: vip, tunnel: pod.Addr(), tunnelOption: older, gue: true},
		"longer than its options": {client: client, dst: pod, option: append(list{vip}, older[:1]...)},
	} {
		w.client = netip.AddrPortFrom(client.Addr(), uint16(40000+len(name))) // a separate flow
		frame := w.bytes(t)
		frame[14+4] ^= 0x40 // of the identification
		wrong := sum16(frame[14:][:int(frame[14]&15)*4])
		verdict, out := n.run(t, n.agent.obj.ToServer, n.pod, frame)
		if verdict == dropped || len(out) >= len(frame) {
			t.Errorf("%s: verdict %d, %d bytes of %d", name, verdict, len(out), len(frame))
			continue
		}
		if got := sum16(out[14:][:int(out[14]&15)*4]); got != wrong {
			t.Errorf("%s: the header's sum was %#x, is %#x", name, wrong, got)
		}
	}
}

// A segment to port 0 is no later fragment: it is for no frontend, and its checksum stays
// correct if it is forwarded.
func TestPortZero(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.DSRNAT, vip, pod, service.TCP))
	in := wire{client: client, dst: ap("172.16.1.2:0"), flags: "S", option: list{vip}}
	n.steps(t, []step{{name: "to one port", in: in, same: true, verdict: untouched, counter: "passed-foreign-option"}})

	whole := Entry{Key: service.Key{VIP: vip.Addr(), Last: 65535}, Method: service.DSRNAT, Server: ap("172.16.1.2:0")}
	next := whole
	next.Server = ap("172.16.2.2:0")
	n.setOnly(t, whole, next)
	zero := ap("10.1.1.1:0")
	in = wire{client: client, dst: ap("172.16.1.2:0"), option: list{zero, next.Server}}
	out := wire{client: client, dst: next.Server, option: list{zero}}
	n.steps(t, []step{{name: "to a whole address", in: in, out: out, verdict: sent, counter: "second-chance"}})
}

// A backend's ICMP error about which the kernel must inform the backend, because its TTL
// expired, goes to the kernel unmodified, with the packet that it quotes.
func TestSpentErrorStaysAsItCame(t *testing.T) {
	n := newNode(t)
	n.set(t, entry(service.Tunnel, vip, pod, service.TCP))
	n.run(t, n.agent.obj.ToServer, n.pod, wire{client: client, dst: vip, flags: "S", tunnel: pod.Addr()}.bytes(t))
	of := ipHead{src: pod.Addr(), dst: client.Addr(), ttl: 1}
	frame := icmpFrame(t, of, wire{client: client, dst: pod}, 0)
	n.check(t, "spent", dsrProgFromServer, frame, untouched, frame, "passed-ttl")
}
