package wire

import "encoding/binary"

// View is the result of carefully parsing one IP packet in a frame: the frame's own, or
// one that an ICMP error quotes.
type View struct {
	V6       bool
	L3       int // offset of its header,
	L4       int // its end, after options and extension headers,
	End      int // and the end of the packet, or of the part that exists
	Claimed  int // the end that the header claims
	Src, Dst Addr
	Proto    byte
	TTL, TOS byte
	Offset   int // of a fragment, in bytes
	More     bool
	Fragment int    // IPv6: offset of the fragment header, or 0
	ID       uint32 // of a fragment, as four bytes; for IPv4 the upper two are zero on a little-endian machine
	// SourceRoute means that the sender chooses routers.
	SourceRoute bool
	// Broken means that lengths are inconsistent.
	Broken bool
}

// IsBrokenFragment reports whether it is a fragment of lengths that no sender creates.
func (v *View) IsBrokenFragment() bool {
	bytes := v.End - v.L4
	return v.IsFragment() && (v.Offset+bytes > 0xffff || v.More && (bytes <= 0 || bytes%8 != 0))
}

// IsFragment reports whether it is not a complete packet.
func (v *View) IsFragment() bool { return v.Offset > 0 || v.More }

// Room is the number of bytes after the headers.
func (v *View) Room() int { return v.End - v.L4 }

// ReadIP parses the header at l3 of a packet that ends at limit at the latest. quoted
// means that it may be truncated. ok is false if there is no such header.
func ReadIP(b []byte, l3, limit int, v6, quoted bool) (v View, ok bool) {
	if v6 {
		return readIPv6(b, l3, limit, quoted)
	}
	return readIPv4(b, l3, limit, quoted)
}

func readIPv4(b []byte, l3, limit int, quoted bool) (v View, ok bool) {
	if l3+20 > len(b) {
		return v, false
	}
	ip := b[l3:]
	header := int(ip[0]&15) * 4
	if ip[0]>>4 != 4 || header < 20 {
		return v, false
	}
	length := int(binary.BigEndian.Uint16(ip[2:]))
	frag := binary.BigEndian.Uint16(ip[6:])
	v = View{
		L3: l3, L4: l3 + header, End: l3 + length, Claimed: l3 + length, Broken: length < header,
		Src: From4(ip[12:]), Dst: From4(ip[16:]), Proto: ip[9], TTL: ip[8], TOS: ip[1],
		Offset: int(frag&0x1fff) * 8, More: frag&0x2000 != 0, ID: uint32(binary.LittleEndian.Uint16(ip[4:])),
	}
	if v.End > limit {
		v.End = limit
		v.Broken = v.Broken || !quoted
	}
	return v, true
}

// Options4 walks the options of an IPv4 header: whether they are invalid, and whether one
// of them is a source route.
func Options4(b []byte) (sourceRoute, broken bool) {
	for i := 0; i < len(b); {
		switch kind := b[i]; {
		case kind == 0:
			return sourceRoute, false
		case kind == 1:
			i++
			continue
		case i+1 >= len(b) || b[i+1] < 2 || i+int(b[i+1]) > len(b):
			return sourceRoute, true
		case kind == 131 || kind == 137:
			sourceRoute = true
		}
		i += int(b[i+1])
	}
	return sourceRoute, false
}

func readIPv6(b []byte, l3, limit int, quoted bool) (v View, ok bool) {
	if l3+40 > len(b) || b[l3]>>4 != 6 {
		return v, false
	}
	ip := b[l3:]
	v = View{
		V6: true, L3: l3, L4: l3 + 40, End: l3 + 40 + int(binary.BigEndian.Uint16(ip[4:])),
		Src: From6(ip[8:]), Dst: From6(ip[24:]), Proto: ip[6], TTL: ip[7], TOS: ip[0]<<4 | ip[1]>>4,
	}
	v.Claimed = v.End
	if v.End > limit {
		v.End = limit
		v.Broken = !quoted
	}
	if !v.extensions(b) {
		v.Broken = true
	}
	return v, true
}

// MaxExtensions is the number of headers that the load balancer walks.
const MaxExtensions = 8

func isExtension(proto byte) bool {
	switch proto {
	case HopOpts, Routing, Fragment, AH, DstOpts:
		return true
	}
	return false
}

// extensions walks to the transport header or to the body of a later fragment. It returns
// false if it cannot reach one.
func (v *View) extensions(b []byte) bool {
	for n := 0; isExtension(v.Proto) && v.Offset == 0; n++ {
		if n == MaxExtensions || v.L4+8 > v.End || v.L4+8 > len(b) {
			return false
		}
		e := b[v.L4:]
		length := (int(e[1]) + 1) * 8
		switch v.Proto {
		case Fragment:
			if v.Fragment != 0 {
				return false
			}
			field := binary.BigEndian.Uint16(e[2:])
			length, v.Fragment, v.ID = 8, v.L4, binary.LittleEndian.Uint32(e[4:])
			v.Offset, v.More = int(field&0xfff8), field&1 != 0
		case AH:
			length = (int(e[1]) + 2) * 4
		case Routing:
			v.SourceRoute = v.SourceRoute || e[3] != 0
		}
		v.Proto = e[0]
		v.L4 += length
	}
	return true
}
