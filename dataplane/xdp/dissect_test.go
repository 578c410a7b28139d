package xdp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// anatomy is what a strict parser finds in an IP packet.
type anatomy struct {
	length   int  // of the IP packet, at most what is there
	whole    bool // all lengths fit
	headerOK bool // IPv4's checksum
	l4OK     bool // the transport checksum is correct or absent; for tunnels the inner packet's
	ttl      byte
	src, dst netip.Addr
	proto    byte
	depth    int
}

// dissect parses any IP packet that the program accepts or makes.
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
		// Summed over the IP packet's payload, as the program maintains it, even
		// if UDP's own length is shorter.
		length := int(binary.BigEndian.Uint16(body[4:]))
		a.whole = length >= 8 && length <= len(body)
		a.l4OK = sum16(pseudo, body) == 0 || body[6] == 0 && body[7] == 0
	case a.proto == 4 || a.proto == 41:
		inner := dissect(body)
		a.whole, a.l4OK, a.depth = inner.whole && inner.length == len(body), inner.l4OK && inner.headerOK, inner.depth+1
	}
}

// sum16 is the Internet checksum over parts (RFC 1071), each of even length except the
// last; 0 over data that includes its own correct checksum.
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
