package xdp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/fragment"
	"github.com/fairlead/fairlead/lab/testkit"
)

// fragmented is a fragmented datagram, as received and as sent.
type fragmented struct{ in, out [][]byte }

// tunnelledFragments and rewrittenFragments make one for each way to send.
func tunnelledFragments(t *testing.T, in packet, id uint16, size int) (f fragmented) {
	v6 := is6(in.bytes(t))
	f.in = fragments(in.bytes(t), id, size)
	for _, b := range f.in {
		o := outer{src: owns[v6], dst: addrOf(servers[v6]), ttl: 63, label: label(in)}
		f.out = append(f.out, slices.Concat(macGateway, macEth0, b[12:14], o.wrap(t, b[14:], v6, in.tos)))
	}
	return f
}

// The first fragment carries the VIP, which uses space. The others only get another
// address.
func rewrittenFragments(t *testing.T, in packet, id uint16, size int) (f fragmented) {
	v6 := is6(in.bytes(t))
	f.in = fragments(in.bytes(t), id, size)
	served := in
	served.dst = servers[v6]
	f.out = fragments(outside(served).bytes(t), id, size)
	if in.udp || in.flags == "S" {
		if v6 {
			option := option6(vips[v6], 44)
			f.out[0] = withExtension(f.out[0], 60, option...)
		} else {
			o := option4(vips[v6])[0]
			f.out[0] = withOptions(f.out[0], append([]byte{o.OptionType, o.OptionLength}, o.OptionData...)...)
		}
	}
	return f
}

var fragmenters = map[service.Method]func(*testing.T, packet, uint16, int) fragmented{
	service.Tunnel: tunnelledFragments, service.DSRNAT: rewrittenFragments,
}

func TestFragmentsInOrder(t *testing.T) {
	n := newNet(t)
	id := uint16(100)
	for method, cut := range fragmenters {
		d := openBoth(t, n, method)
		for _, v6 := range []bool{false, true} {
			for kind, in := range inKinds(v6) {
				in.payload += 200
				id++
				f := cut(t, in, id, 64)
				for i := range f.in {
					name := fmt.Sprintf("%s, %s, v6 %v, fragment %d", method, kind, v6, i)
					rawRow{name: name, in: f.in[i], verdict: redirect, out: f.out[i]}.check(t, n, d)
				}
			}
		}
		must(t, d.Detach())
		n.current = nil
	}
}

// sendAll sends frames from the far end of eth0.
func (w *wireEnd) sendAll(t *testing.T, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		_, err := unix.Write(w.fd, f)
		must(t, err)
	}
}

// receiveAll waits until all these frames have come back, in any order.
func (w *wireEnd) receiveAll(t *testing.T, what string, frames ...[]byte) {
	t.Helper()
	buf := make([]byte, 16384)
	for missing := len(frames); missing > 0; {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if err != nil {
			t.Fatalf("%s: %d of %d have not come back: %v", what, missing, len(frames), err)
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		for i, f := range frames {
			if f != nil && bytes.Equal(buf[:n], f) {
				frames[i] = nil
				missing--
				break
			}
		}
	}
}

// Later fragments that arrive first wait for theirs in user space, and continue when it
// has arrived.
func TestFragmentsOutOfOrder(t *testing.T) {
	n := newNet(t)
	id := uint16(100)
	for method, cut := range fragmenters {
		d := openBoth(t, n, method)
		w := n.wireEnd(t)
		late := false
		for _, v6 := range []bool{false, true} {
			for _, in := range []packet{
				{src: clients[v6], dst: vips[v6], udp: true, payload: 4000},
				{src: clients[v6], dst: vips[v6], payload: 900},
			} {
				var f fragmented
				for inTime := false; !inTime; late = late || !inTime {
					id++
					f = cut(t, in, id, 400)
					backwards := slices.Clone(f.in)
					slices.Reverse(backwards)
					began := time.Now()
					w.sendAll(t, backwards...)
					inTime = time.Since(began) < fragment.Life/2 // else another datagram is tried
				}
				w.receiveAll(t, fmt.Sprintf("%s, v6 %v", method, v6), slices.Clone(f.out)...)
			}
		}
		if lost := d.Describe().Drops["fragment-lost"]; lost != 0 && !late {
			t.Errorf("%s: %d fragments were lost", method, lost)
		}
		must(t, d.Detach())
		n.current = nil
	}
}

// A fragment whose first never arrives is dropped with its own reason, as is one that
// arrives after that.
func TestFragmentLost(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.Tunnel)
	f := tunnelledFragments(t, packet{src: clients[false], dst: vips[false], udp: true, payload: 500}, 9, 200)
	lost := func(want uint64) {
		t.Helper()
		testkit.Eventually(t, patience, func() error {
			if got := d.Describe().Drops["fragment-lost"]; got != want {
				return fmt.Errorf("%d were lost, want %d", got, want)
			}
			return nil
		})
	}
	rawRow{name: "later", in: f.in[1], verdict: drop}.check(t, n, d)
	lost(1)
	rawRow{name: "another one", in: f.in[2], verdict: drop, drop: "fragment-lost"}.check(t, n, d)
	rawRow{name: "the first, late", in: f.in[0], verdict: redirect, out: f.out[0]}.check(t, n, d)
	rawRow{name: "the same again", in: f.in[1], verdict: redirect, out: f.out[1]}.check(t, n, d)
	long := fragments(packet{src: clients[false], dst: vips[false], udp: true, payload: 9000}.bytes(t), 10, 4000)
	rawRow{name: "one too long to wait", in: long[1], verdict: drop, drop: "fragment-lost"}.check(t, n, d)
}

func TestFragmentsRefused(t *testing.T) {
	n := newNet(t)
	d := openBoth(t, n, service.Tunnel)
	for _, v6 := range []bool{false, true} {
		tcp := packet{src: clients[v6], dst: vips[v6], payload: 100}.bytes(t)
		udp := packet{src: clients[v6], dst: vips[v6], udp: true, payload: 100}.bytes(t)
		tiny := fragments(tcp, 20, 16)
		rawRow{name: "first without all of TCP's header", in: tiny[0], verdict: drop, drop: "tiny-fragment"}.check(t, n, d)
		whole := fragments(tcp, 21, 64)
		v, _ := n.run(t, d, whole[0])
		if v != redirect {
			t.Fatal(v)
		}
		rawRow{name: "one that writes over TCP's header", in: fragments(tcp, 21, 8)[1], verdict: drop, drop: "tiny-fragment"}.check(t, n, d)
		odd := fragments(udp, 22, 64)[0]
		odd = odd[:len(odd)-4]
		if v6 {
			odd[19] -= 4
		} else {
			header4(odd[14:])
		}
		rawRow{name: "length that is no multiple of eight", in: odd, verdict: drop, drop: "malformed"}.check(t, n, d)
		beyond := fragments(udp, 23, 64)[1]
		if v6 {
			beyond = edit(beyond, 54+2, 0xff, 0xf8)
		} else {
			beyond = edit(beyond, 20, 0x1f, 0xff)
			header4(beyond[14:])
		}
		rawRow{name: "beyond the longest datagram", in: beyond, verdict: drop, drop: "malformed"}.check(t, n, d)
	}
	six := packet{src: clients[true], dst: vips[true], payload: 100}.bytes(t)
	in := packet{src: clients[true], dst: vips[true], payload: 100}
	atomic := withExtension(six, 44, 0, 0, 0, 0, 0, 0, 0, 5)
	o := outer{src: owns[true], dst: addrOf(servers[true]), ttl: 63, label: label(in)}
	rawRow{name: "a whole packet with a fragment header", in: atomic, verdict: redirect,
		out: slices.Concat(macGateway, macEth0, atomic[12:14], o.wrap(t, atomic[14:], true, 0))}.check(t, n, d)
	rawRow{name: "two fragment headers", in: withExtension(atomic, 44, 0, 0, 0, 0, 0, 0, 0, 6), verdict: drop, drop: "malformed"}.check(t, n, d)
}
