package xdp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// sctpInit returns a frame with an SCTP INIT and this many bytes after it.
func sctpInit(t *testing.T, src, dst string, more int) []byte {
	t.Helper()
	from, to := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	frame := packet{src: src, dst: dst, flags: "S", payload: more}.bytes(t)
	frame[14+9] = 132
	binary.BigEndian.PutUint16(frame[14+10:], 0)
	binary.BigEndian.PutUint16(frame[14+10:], sum16(frame[14:34]))
	l4 := frame[34:]
	binary.BigEndian.PutUint16(l4, from.Port())
	binary.BigEndian.PutUint16(l4[2:], to.Port())
	clear(l4[4:12])
	copy(l4[12:], []byte{1, 0, 0, 8}) // INIT
	binary.LittleEndian.PutUint32(l4[8:], crc32.Checksum(l4, crc32.MakeTable(crc32.Castagnoli)))
	return frame
}

// Another SCTP port changes the checksum over the whole packet.
func TestSCTPPort(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.DSRNAT, vips[false], service.SCTP, servers[false]))
	for _, more := range []int{8, 9, 500, 1200} {
		v, out := n.run(t, d, sctpInit(t, clients[false], vips[false], more))
		if v != redirect {
			t.Fatalf("%d bytes: %v, drops %v", more, v, d.Describe().Drops)
		}
		l4 := bytes.Clone(out[14+int(out[14]&15)*4:])
		if port := binary.BigEndian.Uint16(l4[2:]); port != netip.MustParseAddrPort(servers[false]).Port() {
			t.Errorf("%d bytes: to port %d", more, port)
		}
		got := binary.LittleEndian.Uint32(l4[8:])
		clear(l4[8:12])
		if want := crc32.Checksum(l4, crc32.MakeTable(crc32.Castagnoli)); got != want {
			t.Errorf("%d bytes: checksum %#x, want %#x", more, got, want)
		}
	}
}

// The first fragment's checksum covers the others too: it cannot be updated for a new
// port.
func TestSCTPFragment(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	first := fragments(sctpInit(t, clients[false], vips[false], 500), 7, 200)[0]
	same := netip.AddrPortFrom(netip.MustParseAddrPort(servers[false]).Addr(), netip.MustParseAddrPort(vips[false]).Port()).String()
	for _, tc := range []struct {
		method service.Method
		server string
		want   verdict
	}{
		{service.DSRNAT, servers[false], drop}, {service.FullNAT, same, drop}, {service.DSRNAT, same, redirect},
	} {
		upsert(t, d, frontend(tc.method, vips[false], service.SCTP, tc.server))
		before := d.Describe().Drops["sctp-fragment"]
		v, _ := n.run(t, d, first)
		if dropped := d.Describe().Drops["sctp-fragment"] - before; v != tc.want || (dropped == 1) != (tc.want == drop) {
			t.Errorf("%s to %s: %v, %d dropped; want %v", tc.method, tc.server, v, dropped, tc.want)
		}
	}
}

// GUE: an outer IP header, UDP without a checksum, four bytes, the packet.
func TestGUE(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		f := frontend(service.Tunnel, vips[v6], service.TCP, servers[v6])
		f.Encapsulation = service.GUE
		upsert(t, d, f)
		in := packet{src: clients[v6], dst: vips[v6], flags: "S", payload: 30}.bytes(t)
		v, out := n.run(t, d, in)
		if v != redirect {
			t.Fatalf("v6 %v: %v, drops %v", v6, v, d.Describe().Drops)
		}
		header, inner := 20, byte(4)
		proto, length, sum := out[14+9], int(binary.BigEndian.Uint16(out[16:])), sum16(out[14:34])
		if v6 {
			header, inner = 40, 41
			proto, length, sum = out[14+6], 40+int(binary.BigEndian.Uint16(out[18:])), 0
		}
		udp := out[14+header:]
		if proto != 17 || length != len(out)-14 || sum != 0 {
			t.Errorf("v6 %v: outer header %x", v6, out[14:14+header])
		}
		sport, dport, bytesLen := binary.BigEndian.Uint16(udp), binary.BigEndian.Uint16(udp[2:]), int(binary.BigEndian.Uint16(udp[4:]))
		if sport < 49152 || dport != 6080 || bytesLen != len(udp) || udp[6] != 0 || udp[7] != 0 {
			t.Errorf("v6 %v: UDP %x", v6, udp[:8])
		}
		if want := []byte{0, inner, 0, 0}; !bytes.Equal(udp[8:12], want) || !bytes.Equal(udp[12:], in[14:]) {
			t.Errorf("v6 %v: GUE %x, then %x", v6, udp[8:12], udp[12:])
		}
	}
}
