package vdn

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
	plan "github.com/fairlead/fairlead/vdn"
)

// Ethernet types.
const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86dd
)

const major = 0xfa1e // of HTB

// reason is why a packet is dropped: the C name after VDN_REASON_; empty if it passes.
type reason = string

const (
	fine     reason = ""
	overRate reason = "OVER_RATE"
	isolated reason = "ISOLATED"
	outside  reason = "OUTSIDE"
	spoofed  reason = "SPOOFED"

	// At uplinks, for frames that bypassed the programs at their pod's device.
	bypassed  reason = "BYPASSED"
	unstamped reason = "UNSTAMPED"
)

// stamp in skb->tc_index means that a frame has passed its pod's device.
const stamp = 0xfa1e

// pod is the identity of a pod.
type pod struct {
	name  string
	slice uint16
	mac   [6]byte
	addrs []netip.Addr
	// macvlan pods get other pods' broadcast past the uplink.
	macvlan bool

	rate     uint64 // bit/s, in each direction
	until    [2]uint64
	counters [2]map[string]uint64
}

const (
	sends    = 0
	receives = 1
)

// frame is the input of a program.
type frame struct {
	bytes    []byte
	priority uint32
	tcIndex  uint32
	sender   *pod // owner of its socket; nil means the node
}

// refusedKey is who was rejected at an uplink, and why.
type refusedKey struct {
	slice uint16
	why   reason
}

// model is what the programs must do.
type model struct {
	slices   []plan.Slice
	ns       uint64
	refused  map[refusedKey]uint64
	priority uint32 // of the last frame, as the program must leave it
	tcIndex  uint32
}

// owner returns the slice of an address, or nil.
func (m *model) owner(a netip.Addr) (s *plan.Slice) {
	most := -1
	for i := range m.slices {
		for _, p := range m.slices[i].Prefixes {
			if p.Contains(a) && p.Bits() > most {
				s, most = &m.slices[i], p.Bits()
			}
		}
	}
	return s
}

func (m *model) slice(id uint16) *plan.Slice {
	for i := range m.slices {
		if m.slices[i].ID == id {
			return &m.slices[i]
		}
	}
	return nil
}

func names(s *plan.Slice, id uint16) bool {
	for _, r := range s.PeerNetworks {
		if r == id {
			return true
		}
	}
	return false
}

// mayTalk returns whether a slice may communicate with an address in both directions.
func (m *model) mayTalk(id uint16, a netip.Addr) reason {
	s, o := m.slice(id), m.owner(a)
	switch {
	case o != nil && o.ID == id:
		return fine
	case o != nil && s != nil && names(s, o.ID) && names(o, id):
		return fine
	case o != nil:
		return isolated
	case s == nil:
		return outside
	}
	for _, p := range s.AllowedCIDRs {
		if p.Contains(a) {
			return fine
		}
	}
	return outside
}

func address(b []byte) netip.Addr {
	if len(b) == 4 {
		return netip.AddrFrom4([4]byte(b))
	}
	return netip.AddrFrom16([16]byte(b))
}

func (p *pod) has(a netip.Addr) bool {
	for _, own := range p.addrs {
		if a == own && !a.IsUnspecified() {
			return true
		}
	}
	return false
}

// madeOfMAC reports whether an address is the link-local address of the pod's device.
func (p *pod) madeOfMAC(a netip.Addr) bool {
	b := [16]byte{0xfe, 0x80, 8: p.mac[0] ^ 2, p.mac[1], p.mac[2], 0xff, 0xfe, p.mac[3], p.mac[4], p.mac[5]}
	return a == netip.AddrFrom16(b)
}

// atPod returns the verdict at a pod's device.
func (m *model) atPod(p *pod, way int, f *frame) int32 {
	m.priority, m.tcIndex = f.priority, f.tcIndex
	why := fine
	switch {
	case way == sends:
		why = m.send(p, f.bytes)
	case p.macvlan && f.tcIndex != stamp && f.bytes[0]&1 != 0: // broadcast that was not checked
		why = spoofed
		m.refused[refusedKey{p.slice, bypassed}]++
	default:
		if p.macvlan && f.tcIndex != stamp { // something at the uplink removes stamps
			m.refused[refusedKey{p.slice, unstamped}]++
		}
		why = m.receive(p, f.bytes)
	}
	if why == fine && p.rate > 0 {
		if p.until[way] > m.ns {
			why = overRate
		} else {
			p.until[way] = max(p.until[way], m.ns-100_000_000) + uint64(len(f.bytes))*8_000_000_000/p.rate
		}
	}
	if why != fine {
		p.counters[way][why]++
		return packetfuzz.ActShot
	}
	p.counters[way]["bytes"] += uint64(len(f.bytes))
	if way == sends {
		m.tcIndex = stamp
	}
	return packetfuzz.ActUnspec
}

func kindOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[12:]) }

// send checks what a pod may send.
func (m *model) send(p *pod, frame []byte) reason {
	if [6]byte(frame[6:]) != p.mac {
		return spoofed
	}
	b := frame[14:]
	switch kindOf(frame) {
	case typeIPv4:
		if !p.has(address(b[12:16])) {
			return spoofed
		}
		return m.mayTalk(p.slice, address(b[16:20]))
	case typeARP:
		return m.sendARP(p, b)
	case typeIPv6:
		return m.send6(p, b)
	}
	return isolated
}

func isPlainARP(b []byte) bool {
	return len(b) >= 28 && [6]byte(b) == [6]byte{0, 1, 8, 0, 6, 4}
}

// sendARP checks that a pod claims only its own addresses, and queries only those that it
// may communicate with.
func (m *model) sendARP(p *pod, b []byte) reason {
	if !isPlainARP(b) || [6]byte(b[8:]) != p.mac {
		return spoofed
	}
	if sender := address(b[14:18]); !sender.IsUnspecified() && !p.has(sender) {
		return spoofed
	}
	return m.mayTalk(p.slice, address(b[24:28]))
}

// isNeighborDiscovery reports whether an IPv6 packet is neighbor discovery; only its
// type needs to be present.
func isNeighborDiscovery(b []byte) bool {
	return b[6] == wire.ICMPv6 && b[7] == 255 && len(b) > 40 && b[40] >= 133 && b[40] <= 137
}

// isReport reports whether it is an MLD version 2 report.
func isReport(b []byte) bool {
	return b[6] == wire.HopOpts && b[7] == 1 && address(b[24:40]) == netip.MustParseAddr("ff02::16") &&
		len(b) >= 49 && b[40] == wire.ICMPv6 && b[41] == 0 && b[48] == 143
}

func (m *model) send6(p *pod, b []byte) reason {
	src, dst := address(b[8:24]), address(b[24:40])
	nd, report := isNeighborDiscovery(b), isReport(b)
	switch {
	case b[6] == wire.ICMPv6 && len(b) == 40, src.Is4In6(): // no such packet is sent
		return spoofed
	case dst.Is4In6():
		return outside
	case b[7] == 255 && (b[6] == wire.HopOpts || b[6] == wire.Routing || b[6] == wire.Fragment || b[6] == wire.DstOpts):
		return spoofed // it could hide neighbor discovery
	case p.has(src), (nd || report) && (src.IsUnspecified() || p.madeOfMAC(src)):
	case p.madeOfMAC(src):
		return isolated
	default:
		return spoofed
	}
	if report {
		return fine
	}
	if nd {
		why := m.sendDiscovery(p, b, src)
		if why != fine || dst.IsLinkLocalUnicast() || b[24] == 0xff && b[25] == 2 {
			return why
		}
	}
	return m.mayTalk(p.slice, dst)
}

// sendDiscovery checks that a host solicits, and advertises only its own addresses, with
// at most one option, whose MAC address is its own.
func (m *model) sendDiscovery(p *pod, b []byte, src netip.Addr) reason {
	const solicitRouter, solicit, advertise = 133, 135, 136
	before := 64
	switch b[40] {
	case solicitRouter:
		before = 48
	case solicit, advertise:
	default:
		return spoofed
	}
	if 40+int(binary.BigEndian.Uint16(b[4:])) > before+8 {
		return spoofed
	}
	if len(b) >= before+8 && (b[before] == 1 || b[before] == 2) && [6]byte(b[before+2:]) != p.mac {
		return spoofed
	}
	if b[40] == solicitRouter {
		return fine
	}
	if len(b) < 64 {
		return spoofed
	}
	target := address(b[48:64])
	if target.Is4In6() { // no neighbor has one
		return spoofed
	}
	if b[40] == advertise || src.IsUnspecified() {
		if p.has(target) || p.madeOfMAC(target) {
			return fine
		}
		return spoofed
	}
	if target.IsLinkLocalUnicast() {
		return fine
	}
	return m.mayTalk(p.slice, target)
}

// receive checks what a pod may receive.
func (m *model) receive(p *pod, frame []byte) reason {
	b, why := frame[14:], fine
	switch kindOf(frame) {
	case typeIPv4:
		why = m.mayTalk(p.slice, address(b[12:16]))
	case typeARP:
		if !isPlainARP(b) {
			return spoofed
		}
		if sender := address(b[14:18]); !sender.IsUnspecified() {
			return m.mayTalk(p.slice, sender)
		}
		return fine
	case typeIPv6:
		src, dst := address(b[8:24]), address(b[24:40])
		switch {
		case b[6] == wire.ICMPv6 && len(b) == 40, src.Is4In6(), dst.Is4In6():
			return spoofed
		case (isNeighborDiscovery(b) || isReport(b)) && (src.IsLinkLocalUnicast() || src.IsUnspecified()):
			return fine
		}
		why = m.mayTalk(p.slice, src)
	default:
		return isolated
	}
	if why == outside {
		if src, dst, ok := quoted(frame); ok && p.has(src) {
			return m.mayTalk(p.slice, dst)
		}
	}
	return why
}

// quoted returns the sender and receiver of the packet that an ICMP error is about. The
// error must go to that sender, and quote eight bytes of a transport that cannot be an
// error itself.
func quoted(frame []byte) (src, dst netip.Addr, ok bool) {
	b := frame[14:]
	switch kindOf(frame) {
	case typeIPv4:
		return quoted4(b)
	case typeIPv6:
		return quoted6(b)
	}
	return src, dst, false
}

func quoted4(b []byte) (src, dst netip.Addr, ok bool) {
	header := int(b[0]&15) * 4
	length := int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 != 4 || header < 20 || b[9] != wire.ICMP || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 || length < header+36 || len(b) < header+36 {
		return src, dst, false
	}
	icmp := b[header:]
	q := icmp[8:]
	isError := icmp[0] == 3 || icmp[0] == 11 || icmp[0] == 12
	isQuery := q[9] != wire.ICMP || q[20] == 0 || q[20] == 8
	first := binary.BigEndian.Uint16(q[6:])&0x1fff == 0
	src, dst = address(q[12:16]), address(q[16:20])
	return src, dst, isError && isQuery && first && q[0] == 0x45 && src == address(b[16:20])
}

// extensions are IPv6 extension headers: no quoted packet may have one.
var extensions = map[byte]bool{0: true, 43: true, 44: true, 51: true, 60: true, 135: true, 139: true, 140: true}

func quoted6(b []byte) (src, dst netip.Addr, ok bool) {
	if b[0]>>4 != 6 || b[6] != wire.ICMPv6 || int(binary.BigEndian.Uint16(b[4:])) < 56 || len(b) < 40+56 {
		return src, dst, false
	}
	icmp := b[40:]
	q := icmp[8:]
	isError := icmp[0] >= 1 && icmp[0] <= 4
	isQuery := q[6] != wire.ICMPv6 || q[40] == 128 || q[40] == 129
	src, dst = address(q[8:24]), address(q[24:40])
	return src, dst, isError && isQuery && q[0]>>4 == 6 && !extensions[q[6]] && src == address(b[24:40]) && !src.Is4In6() && !dst.Is4In6()
}

// atPort returns the verdict at the node's end of a pod's veth: all packets are the
// pod's.
func (m *model) atPort(f *frame) int32 {
	m.priority, m.tcIndex = f.priority, f.tcIndex
	if f.tcIndex == stamp {
		return packetfuzz.ActUnspec
	}
	m.refused[refusedKey{0, bypassed}]++
	return packetfuzz.ActShot
}

// atUplink returns the verdict at an uplink, of a gateway or of another node.
func (m *model) atUplink(f *frame, leaves, gateway bool) int32 {
	m.priority, m.tcIndex = f.priority, f.tcIndex
	if f.tcIndex != stamp && f.sender != nil {
		m.refused[refusedKey{f.sender.slice, bypassed}]++
		return packetfuzz.ActShot
	}
	switch {
	case !leaves:
		m.tcIndex = stamp
	case f.tcIndex == stamp:
		m.tcIndex = 0
	}
	if !leaves && !gateway {
		return packetfuzz.ActUnspec
	}
	if leaves && f.priority>>16 == major {
		m.priority = 0 // senders must not choose the class
	}
	frame := f.bytes
	src, dst, ok := ends(frame)
	if !ok {
		return packetfuzz.ActUnspec
	}
	from, to := m.owner(src), m.owner(dst)
	var who *plan.Slice
	why := fine
	switch {
	case from != nil:
		who, why = from, m.mayTalk(from.ID, dst)
	case to != nil:
		if who, why = to, m.mayTalk(to.ID, src); why == outside {
			if _, about, ok := quoted(frame); ok {
				why = m.mayTalk(to.ID, about)
			}
		}
	default:
		return packetfuzz.ActUnspec
	}
	if why != fine {
		m.refused[refusedKey{who.ID, why}]++
		return packetfuzz.ActShot
	}
	if leaves {
		if who.GuaranteedRate == 0 && who.MaxRate == 0 && to != nil {
			who = to
		}
		m.priority = major<<16 | uint32(who.ID+1)
	}
	return packetfuzz.ActUnspec
}

// ends returns the ends of an IP packet, unless it is a message between neighbors.
func ends(frame []byte) (src, dst netip.Addr, ok bool) {
	b := frame[14:]
	switch kindOf(frame) {
	case typeIPv4:
		return address(b[12:16]), address(b[16:20]), true
	case typeIPv6: // IPv4 addresses in it are judged as IPv4
		src, dst = address(b[8:24]).Unmap(), address(b[24:40]).Unmap()
		return src, dst, !isNeighborDiscovery(b) && !isReport(b)
	}
	return src, dst, false
}
