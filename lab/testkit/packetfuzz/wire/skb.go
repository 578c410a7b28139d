package wire

import "encoding/binary"

// Kind is what a Packet turns out to be.
type Kind int

// The kinds of packets, as bpf/skb distinguishes them.
const (
	Foreign Kind = iota // not relevant here
	Malformed
	Transport // with ports
	Later     // a fragment that is not the first
	Error     // ICMP
	Tunnel4
	Tunnel6
)

// Packet is one IP header of a frame at tc, and what it carries.
type Packet struct {
	Tuple
	Kind         Kind
	V6           bool
	L3, L4, Room int
	ID           uint32 // of a fragment, in memory order
	List         int    // number of endpoints in a list
	Tagged       bool   // the list ends with an authentication tag
	Next         byte   // IPv6: what follows the list's header
	Flags        byte   // for TCP its 13th byte, for SCTP the chunk's type
	TTL, TOS     byte
	Fragment     bool
	Plain        bool // neither options nor extension headers
	DF           bool
}

// ReadSKB parses the header at l3 of a frame that is completely readable.
func ReadSKB(b []byte, l3 int, v6 bool) (p Packet) {
	p = Packet{L3: l3, V6: v6, Kind: Malformed}
	header := 20
	if v6 {
		header = 40
	}
	if l3 > 320 || len(b) < l3+header {
		return p
	}
	if v6 {
		p.ipv6(b)
	} else {
		p.ipv4(b)
	}
	return p
}

// TagBytes is the length of an authentication tag, which may end a list.
const TagBytes = 8

// listLength returns how many endpoints a number of bytes contains, and whether a tag
// ends them.
func listLength(bytes, size int) (n int, tagged bool) {
	if n = bytes / size; n <= 6 && n*size == bytes {
		return n, false
	}
	bytes -= TagBytes
	if n = bytes / size; bytes >= 0 && n <= 6 && n*size == bytes {
		return n, true
	}
	return 0, false
}

// ListBytes is the length of a list in an IP header, with padding.
func ListBytes(n int, v6 bool) int { return listBytesOf(n, false, v6) }

// TaggedBytes is the same for a list that ends with an authentication tag.
func TaggedBytes(n int, v6 bool) int { return listBytesOf(n, true, v6) }

// ListBytesIn is the length of the packet's own list.
func (p *Packet) ListBytesIn() int { return listBytesOf(p.List, p.Tagged, p.V6) }

func listBytesOf(n int, tagged, v6 bool) int {
	tag := 0
	if tagged {
		tag = TagBytes
	}
	switch {
	case n+tag == 0:
		return 0
	case v6:
		return (4 + 18*n + tag + 7) &^ 7
	}
	return (2 + 6*n + tag + 3) &^ 3
}

// GUEListBytes is the length of a list in GUE.
func GUEListBytes(n int, tagged, v6 bool) int {
	tag := 0
	if tagged {
		tag = TagBytes
	}
	switch {
	case n+tag == 0:
		return 0
	case v6:
		return (4 + 18*n + tag + 3) &^ 3
	}
	return (4 + 6*n + tag + 3) &^ 3
}

func (p *Packet) ipv4(b []byte) {
	ip := b[p.L3:]
	header, length := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || header < 20 || length > len(ip) || length < header {
		return
	}
	p.Plain = header == 20
	p.L4 = p.L3 + header
	p.Src, p.Dst, p.Proto, p.TTL, p.TOS = From4(ip[12:]), From4(ip[16:]), ip[9], ip[8], ip[1]
	frag := binary.BigEndian.Uint16(ip[6:])
	p.DF = frag&0x4000 != 0
	if frag&0x3fff != 0 {
		p.Fragment, p.ID = true, uint32(binary.LittleEndian.Uint16(ip[4:]))
	}
	if header >= 28 && ip[20] == 0x9e && ip[21] >= 2 {
		p.List, p.Tagged = listLength(int(ip[21])-2, 6)
		if p.ListBytesIn() > header-20 {
			p.List, p.Tagged = 0, false
		}
	}
	if frag&0x1fff != 0 {
		p.Kind = Later
		return
	}
	p.payload(b, length-header)
}

func (p *Packet) ipv6(b []byte) {
	ip := b[p.L3:]
	if ip[0]>>4 != 6 {
		return
	}
	room := int(binary.BigEndian.Uint16(ip[4:]))
	if room > len(ip)-40 {
		room = 0
	}
	p.Plain, p.L4 = true, p.L3+40
	p.Src, p.Dst, p.Proto, p.TTL, p.TOS = From6(ip[8:]), From6(ip[24:]), ip[6], ip[7], ip[0]<<4|ip[1]>>4
	if p.Src.Is4() || p.Dst.Is4() { // no packet is like that
		p.Kind = Foreign
		return
	}
	if ip[6] == DstOpts && len(ip) >= 44 && ip[42] == 0x1e {
		if n, tagged := listLength(int(ip[43]), 18); (n > 0 || tagged) && listBytesOf(n, tagged, true) == (int(ip[41])+1)*8 {
			p.List, p.Tagged, p.Next = n, tagged, ip[40]
		}
	}
	for n := 0; n < 6; n++ {
		if p.Proto != HopOpts && p.Proto != DstOpts && p.Proto != Routing && p.Proto != Fragment {
			break
		}
		if p.L4+8 > len(b) {
			return
		}
		head := b[p.L4:]
		bytes, later := 8+int(head[1])*8, false
		if p.Proto == Fragment {
			bytes = 8
			if field := binary.BigEndian.Uint16(head[2:]); field&0xfff9 != 0 {
				p.Fragment, p.ID, later = true, binary.LittleEndian.Uint32(head[4:]), field&0xfff8 != 0
			}
		}
		if bytes > room {
			return
		}
		p.Plain, p.Proto = false, head[0]
		p.L4, room = p.L4+bytes, room-bytes
		if later {
			p.Kind = Later
			return
		}
	}
	p.payload(b, room)
}

// payload parses what follows the IP headers, which has room bytes.
func (p *Packet) payload(b []byte, room int) {
	p.Room = room
	t := b[min(p.L4, len(b)):]
	switch p.Proto {
	case TCP:
		if len(t) < 20 || int(t[12]>>4)*4 < 20 || int(t[12]>>4)*4 > room {
			return
		}
		p.Flags = t[13]
	case UDP:
		if len(t) < 8 || room < 8 {
			return
		}
		if length := int(binary.BigEndian.Uint16(t[4:])); !p.Fragment && (length > room || length > 0 && length < 8) {
			return
		}
	case SCTP:
		if len(t) < 16 || room < 16 {
			return
		}
		p.Flags = t[12]
	default:
		p.Kind = kindOf(p.Proto, p.V6)
		return
	}
	p.SPort, p.DPort = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	p.Kind = Transport
}

func kindOf(proto byte, v6 bool) Kind {
	switch {
	case proto == IPIP:
		return Tunnel4
	case proto == IPv6:
		return Tunnel6
	case proto == ICMP && !v6, proto == ICMPv6 && v6:
		return Error
	}
	return Foreign
}

// Opens reports whether a packet begins a connection: SYN without ACK, INIT.
func (p *Packet) Opens() bool {
	return p.Proto == TCP && p.Flags&0x12 == 2 || p.Proto == SCTP && p.Flags == 1
}

// Accepts reports whether it accepts one: SYN and ACK.
func (p *Packet) Accepts() bool { return p.Proto == TCP && p.Flags&0x12 == 0x12 }

// Finishes reports whether its sender has no more to send.
func (p *Packet) Finishes() bool {
	return p.Proto == TCP && p.Flags&1 != 0 || p.Proto == SCTP && (p.Flags == 7 || p.Flags == 8 || p.Flags == 14)
}

// Resets reports whether it aborts its connection.
func (p *Packet) Resets() bool {
	return p.Proto == TCP && p.Flags&4 != 0 || p.Proto == SCTP && p.Flags == 6
}

// Attempt returns the number that distinguishes attempts to open a connection: the
// sequence number of a SYN, the initiate tag of an INIT. It is 0 if the frame is too
// short.
func (p *Packet) Attempt(b []byte) uint32 {
	if p.Proto == SCTP {
		return number(b, p.L4+16)
	}
	return number(b, p.L4+4)
}

// Answers returns the number of the attempt that a packet may answer; whether it may; and
// whether it means that an older connection with these ports has ended.
func (p *Packet) Answers(b []byte) (attempt uint32, may, ends bool) {
	if p.Proto == SCTP {
		const cookieAck = 11
		return number(b, p.L4+4), true, p.Flags == cookieAck
	}
	return number(b, p.L4+8) - 1, p.Accepts(), true
}

func number(b []byte, at int) uint32 {
	if at+4 > len(b) {
		return 0
	}
	return binary.BigEndian.Uint32(b[at:])
}

// Quoted is the beginning of a packet that an ICMP error is about.
type Quoted struct {
	Tuple
	L3, L4 int
	Room   int // bytes of the frame from L4 on
}

// ReadQuoted parses the packet that an ICMP error is about. It returns false if this is
// not an error, or if the packet has no ports.
func (p *Packet) ReadQuoted(b []byte) (q Quoted, ok bool) {
	if p.L4 >= len(b) || !isErrorType(b[p.L4], p.V6) {
		return q, false
	}
	q.L3 = p.L4 + 8
	header := 20
	if p.V6 {
		header = 40
	}
	if q.L3+header > len(b) {
		return q, false
	}
	if ip := b[q.L3:]; p.V6 {
		ok = q.ipv6(b)
	} else {
		q.Src, q.Dst, q.Proto = From4(ip[12:]), From4(ip[16:]), ip[9]
		q.L4 = q.L3 + int(ip[0]&15)*4
		ok = ip[0]>>4 == 4 && ip[0]&15 >= 5 && binary.BigEndian.Uint16(ip[6:])&0x1fff == 0
	}
	if !ok || !HasPorts(q.Proto) || q.L4+4 > len(b) {
		return q, false
	}
	q.SPort, q.DPort = binary.BigEndian.Uint16(b[q.L4:]), binary.BigEndian.Uint16(b[q.L4+2:])
	q.Room = len(b) - q.L4
	return q, true
}

func (q *Quoted) ipv6(b []byte) bool {
	ip := b[q.L3:]
	if ip[0]>>4 != 6 {
		return false
	}
	q.Src, q.Dst, q.Proto, q.L4 = From6(ip[8:]), From6(ip[24:]), ip[6], q.L3+40
	for range 6 {
		if q.Proto != HopOpts && q.Proto != DstOpts && q.Proto != Routing && q.Proto != Fragment {
			return true
		}
		if q.L4+4 > len(b) {
			return false
		}
		head := b[q.L4:]
		if q.Proto == Fragment && (head[2] != 0 || head[3]&0xf8 != 0) {
			return false
		}
		if q.Proto == Fragment {
			q.L4 += 8
		} else {
			q.L4 += 8 + int(head[1])*8
		}
		q.Proto = head[0]
	}
	return true
}

func isErrorType(kind byte, v6 bool) bool {
	if v6 {
		return kind >= 1 && kind <= 4
	}
	return kind == 3 || kind == 11 || kind == 12
}
