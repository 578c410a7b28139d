package xdp

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// sipHash is SipHash-2-4, written from the paper, independently of our C: little-endian
// words, the last with the length in its highest byte.
func sipHash(key CookieKey, message []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			for i, left := range []struct{ a, b, rot int }{{0, 1, 13}, {2, 3, 16}, {2, 1, 17}, {0, 3, 21}} {
				v[left.a] += v[left.b]
				v[left.b] = bits.RotateLeft64(v[left.b], left.rot) ^ v[left.a]
				if i == 0 || i == 2 {
					v[left.a] = bits.RotateLeft64(v[left.a], 32)
				}
			}
		}
	}
	last := uint64(len(message)) << 56
	for ; len(message) >= 8; message = message[8:] {
		m := binary.LittleEndian.Uint64(message)
		v[3] ^= m
		rounds(2)
		v[0] ^= m
	}
	for i, b := range message {
		last |= uint64(b) << (8 * i)
	}
	v[3] ^= last
	rounds(2)
	v[0] ^= last
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// The vectors of the paper, appendix A, and of its authors' reference.
func TestSipHash(t *testing.T) {
	var key CookieKey
	message := make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range message {
		message[i] = byte(i)
	}
	for length, want := range map[int]uint64{0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 15: 0xa129ca6149be45e5} {
		if got := sipHash(key, message[:length]); got != want {
			t.Errorf("of %d bytes: %#x, want %#x", length, got, want)
		}
	}
}

// cookieOf is a cookie as defined in bpf/balancer/syn_cookie.h.
func cookieOf(key CookieKey, src, dst netip.AddrPort, seq, slot, options uint32) uint32 {
	var m []byte
	for _, a := range []netip.Addr{src.Addr(), dst.Addr()} {
		b := a.As16() // IPv4 is mapped
		m = append(m, b[:]...)
	}
	// Ports as stored in memory, in network order.
	port := func(p uint16) uint64 { return uint64(bits.ReverseBytes16(p)) }
	m = binary.LittleEndian.AppendUint64(m, port(src.Port())<<48|port(dst.Port())<<32|uint64(seq))
	m = binary.LittleEndian.AppendUint64(m, uint64(slot)<<32|uint64(options))
	return uint32(sipHash(key, m))<<10 | options<<2 | slot&3
}

// A cookie is made by SipHash with the configured key, so that another load balancer
// makes the same.
func TestCookiesAreKeyed(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	key := CookieKey{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	must(t, d.SetCookieKeys(key, CookieKey{99}))
	for _, v6 := range []bool{false, true} {
		f := frontend(service.NAT, vips[v6], service.TCP, servers[v6])
		upsert(t, d, f)
		putUnderPressure(t, d, f.Key)
		for _, o := range []struct {
			options []layers.TCPOption
			bits    uint32 // size, scale, SACK
		}{
			{nil, 0<<5 | 15<<1},
			{[]layers.TCPOption{mssOption(1460), sackPermitted, nop, scaleOption(7)}, 6<<5 | 7<<1 | 1},
			{[]layers.TCPOption{mssOption(1459), scaleOption(200)}, 5<<5 | 14<<1},
			{[]layers.TCPOption{mssOption(65535), scaleOption(0)}, 7<<5 | 0<<1},
		} {
			c := &cookieClient{t, n, d, clients[v6], vips[v6], 123456, o.options}
			slot := slotNow(t, d)
			got := c.syn().tcp.Seq
			want := cookieOf(key, netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.vip), c.isn, slot, o.bits)
			if got != want && slotNow(t, d) == slot {
				t.Errorf("v6 %v, %v: the cookie is %#x, want %#x", v6, o.options, got, want)
			}
		}
	}
}

func slotNow(t *testing.T, d *DataPlane) uint32 {
	t.Helper()
	var v bpf.BalancerSynSettings
	must(t, d.kernel.SynSet.Get(&v))
	return uint32((uint64(clock.Now()) + v.Wall) >> 35)
}

// Frontends of every kind can be guarded: one port, a range, a whole address.
func TestGuardedFrontendsOfEveryKind(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	one := frontend(service.FullNAT, "10.1.1.1:80", service.TCP, servers[false])
	ports, whole := one, one
	ports.Key = service.Key{VIP: one.Key.VIP, Port: 100, Last: 200, Protocol: service.TCP}
	whole.Key = service.Key{VIP: netip.MustParseAddr("10.1.1.2"), Last: 65535, Protocol: service.TCP}
	for _, f := range []struct {
		key service.Key
		dst string
	}{{one.Key, "10.1.1.1:80"}, {ports.Key, "10.1.1.1:150"}, {whole.Key, "10.1.1.2:9"}} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, always %v", f.key, always), func(t *testing.T) {
				next := one
				next.Key = f.key
				next.SYNProtection = service.SYNAuto
				if always {
					next.SYNProtection = service.SYNAlways
				}
				upsert(t, d, next)
				syn := tcpSeg{src: clients[false], dst: f.dst, tcp: layers.TCP{SYN: true, Seq: 7}}
				if !always {
					if got := n.exchangeSeg(t, d, syn, redirect); got.flags() != "S" {
						t.Fatalf("before it is guarded a SYN becomes %s", got.flags())
					}
					putUnderPressure(t, d, f.key)
				}
				syn.src = clientOf(77)
				if got := n.exchangeSeg(t, d, syn, redirect); got.flags() != "SA" || got.dst != syn.src {
					t.Errorf("a SYN becomes %s to %s", got.flags(), got.dst)
				}
				// A change of another field leaves it guarded.
				next.Affinity = time.Minute
				upsert(t, d, next)
				syn.src = clientOf(78)
				if got := n.exchangeSeg(t, d, syn, redirect); got.flags() != "SA" {
					t.Errorf("after a change a SYN becomes %s", got.flags())
				}
				next.SYNProtection = service.SYNOff
				upsert(t, d, next)
				syn.src = clientOf(79)
				if got := n.exchangeSeg(t, d, syn, redirect); got.flags() != "S" {
					t.Errorf("when it is switched off a SYN becomes %s", got.flags())
				}
			})
		}
	}
}
