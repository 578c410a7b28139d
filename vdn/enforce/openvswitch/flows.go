package openvswitch

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// The tables of flows, in their order. Metadata holds whose a packet is: the
// sender's slice in its lowest 16 bits, the receiver's in the next.
const (
	tableGuard   = iota // does a port send from its pods' addresses?
	tableFrom           // whose is the source?
	tableTo             // whose is the destination?
	tableJudge          // may they?
	tableReceive        // is it to a pod here?
	tableUplink         // what a slice sends elsewhere
	tableForward        // as a learning switch
)

// kind is what a flow's cookie says that it counts.
type kind uint64

const (
	kindNone kind = iota
	kindSent
	kindReceived
	kindSlice
	kindDrop
)

// cookie tells flows apart when they are counted: of whom (an attachment's place, or
// a slice's number where ofSlice), what, and why dropped.
type cookie struct {
	kind    kind
	reason  int // of reasons
	ofSlice bool
	number  uint32
}

var reasons = []string{enforce.OverRate, enforce.Isolated, enforce.Outside, enforce.Spoofed}

const (
	overRate = iota
	isolated
	outside
	spoofed
)

// mark begins our cookies.
const mark = 0xfa

func (c cookie) number64() uint64 {
	n := uint64(mark)<<56 | uint64(c.kind)<<48 | uint64(c.reason)<<40 | uint64(c.number)
	if c.ofSlice {
		n |= 1 << 32
	}
	return n
}

func cookieOf(n uint64) (cookie, bool) {
	return cookie{kind: kind(n >> 48 & 0xff), reason: int(n >> 40 & 0xff), ofSlice: n>>32&1 == 1, number: uint32(n)}, n>>56 == mark
}

// translation is a plan in OpenFlow's terms.
type translation struct {
	flows  []string
	meters map[uint32]vdn.Rate
	slots  map[uint32]vdn.Attachment
	err    error
}

// Meters: a slice's has its number, an attachment's begin here, by what it sends and
// what it receives.
const (
	meterSends    = 1 << 16
	meterReceives = 2 << 16
)

// translate is pure: the same plan gives the same flows, and an attachment keeps its
// numbers when others come and go.
func translate(all []vdn.Slice, local []vdn.Attachment, uplinks []string) *translation {
	t := &translation{meters: map[uint32]vdn.Rate{}, slots: slotsOf(local)}
	if len(all) == 0 {
		t.flows = []string{"priority=0,actions=NORMAL"}
		return t
	}
	slices.Sort(uplinks)
	for _, table := range []int{tableGuard, tableFrom, tableTo, tableReceive, tableUplink} {
		t.add(table, 0, cookie{}, "", goTo(table+1))
	}
	t.add(tableJudge, 0, cookie{}, "", goTo(tableReceive))
	t.add(tableForward, 0, cookie{}, "", "NORMAL")
	known := enforce.ByName(all)
	for slot, a := range t.slots {
		s, ok := known[a.Network]
		if !ok {
			t.err = &enforce.AttachmentError{ID: a.ID, Err: fmt.Errorf("network %s is not in the plan", a.Network)}
			continue
		}
		if err := t.attachment(slot, a, s); err != nil {
			t.err = &enforce.AttachmentError{ID: a.ID, Err: err}
		}
	}
	for _, s := range all {
		t.slice(s)
	}
	for pair := range enforce.Reach(all) {
		t.add(tableJudge, 100, cookie{}, metadata(pair[0], pair[1], false), goTo(tableReceive))
	}
	// Neighbour discovery and the reports for it go to groups that are in no slice;
	// table 0 has seen that they tell the truth.
	for kind := 133; kind <= 137; kind++ {
		t.add(tableJudge, 200, cookie{}, fmt.Sprintf("icmp6,icmp_type=%d", kind), goTo(tableReceive))
	}
	t.add(tableJudge, 200, cookie{}, "ipv6,ipv6_dst=ff02::16", goTo(tableReceive))
	for _, u := range uplinks {
		t.add(tableUplink, 200, cookie{}, "in_port="+u, goTo(tableForward))
	}
	slices.Sort(t.flows)
	return t
}

func goTo(table int) string { return fmt.Sprintf("goto_table:%d", table) }

// add writes a flow.
func (t *translation) add(table, priority int, c cookie, match, actions string) {
	if match != "" {
		match = "," + match
	}
	var number uint64
	if c.kind != kindNone {
		number = c.number64()
	}
	t.flows = append(t.flows, fmt.Sprintf("cookie=0x%x,table=%d,priority=%d%s,actions=%s", number, table, priority, match, actions))
}

// metered puts a cap before what follows.
func (t *translation) metered(meter uint32, most vdn.Rate, actions string) string {
	if most == 0 {
		return actions
	}
	t.meters[meter] = most
	return fmt.Sprintf("meter:%d,%s", meter, actions)
}

// attachment lets a pod send from what is its own, and counts what is for it.
func (t *translation) attachment(slot uint32, a vdn.Attachment, s vdn.Slice) error {
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	port := fmt.Sprintf("in_port=%s,dl_src=%s", a.Device, mac)
	sent := cookie{kind: kindSent, number: slot}
	next := t.metered(meterSends+slot, s.HostMax, goTo(tableFrom))
	link := linkLocal(mac)
	t.add(tableGuard, 200, sent, fmt.Sprintf("%s,arp,arp_sha=%s,arp_spa=0.0.0.0", port, mac), next)
	for _, nd := range []string{"icmp6,icmp_type=133", "icmp6,icmp_type=135"} {
		t.add(tableGuard, 200, sent, fmt.Sprintf("%s,%s,ipv6_src=%s", port, nd, link), next)
	}
	t.add(tableGuard, 200, sent, fmt.Sprintf("%s,icmp6,icmp_type=136,ipv6_src=%s,nd_target=%s", port, link, link), next)
	t.add(tableGuard, 200, sent, fmt.Sprintf("%s,icmp6,icmp_type=135,ipv6_src=::,nd_target=%s", port, link), next)
	for _, from := range []string{link.String(), "::"} {
		t.add(tableGuard, 200, sent, fmt.Sprintf("%s,ipv6,ipv6_src=%s,ipv6_dst=ff02::16", port, from), next)
	}
	for _, p := range a.Addresses {
		addr := p.Addr()
		if addr.Is4() {
			t.add(tableGuard, 200, sent, fmt.Sprintf("%s,arp,arp_sha=%s,arp_spa=%s", port, mac, addr), next)
			t.add(tableGuard, 200, sent, fmt.Sprintf("%s,ip,nw_src=%s", port, addr), next)
			continue
		}
		t.add(tableGuard, 200, sent, fmt.Sprintf("%s,ipv6,ipv6_src=%s", port, addr), next)
		t.add(tableGuard, 230, sent, fmt.Sprintf("%s,icmp6,icmp_type=135,ipv6_src=::,nd_target=%s", port, addr), next)
		for _, from := range []netip.Addr{addr, link} {
			t.add(tableGuard, 230, sent, fmt.Sprintf("%s,icmp6,icmp_type=136,ipv6_src=%s,nd_target=%s", port, from, addr), next)
		}
	}
	drop := cookie{kind: kindDrop, reason: spoofed, number: slot}
	// Adverts of others' addresses, router adverts, redirects; all else from others' addresses.
	for _, nd := range []int{134, 136, 137} {
		t.add(tableGuard, 220, drop, fmt.Sprintf("in_port=%s,icmp6,icmp_type=%d", a.Device, nd), "drop")
	}
	for _, proto := range []string{"arp", "ip", "ipv6"} {
		t.add(tableGuard, 110, drop, fmt.Sprintf("in_port=%s,dl_src=%s,%s", a.Device, mac, proto), "drop")
	}
	t.add(tableGuard, 110, cookie{kind: kindDrop, reason: isolated, number: slot}, port, "drop")
	// Of no pod that the plan knows; several on one port have this in common.
	t.flows = slices.DeleteFunc(t.flows, func(f string) bool { return f == stranger(a.Device) })
	t.flows = append(t.flows, stranger(a.Device))
	t.add(tableReceive, 100, cookie{kind: kindReceived, number: slot}, "dl_dst="+mac.String(),
		t.metered(meterReceives+slot, s.HostMax, goTo(tableForward)))
	return nil
}

func stranger(device string) string {
	return fmt.Sprintf("cookie=0x0,table=%d,priority=100,in_port=%s,actions=drop", tableGuard, device)
}

// linkLocal is the address that a device makes of its MAC address (RFC 4291).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// slice says whose addresses are, and whom they may talk to.
func (t *translation) slice(s vdn.Slice) {
	for _, p := range s.Prefixes {
		from, to, arp := match(p)
		length := 1000 + p.Bits() // the longest wins
		t.add(tableFrom, length, cookie{}, from, fmt.Sprintf("write_metadata:0x%x/0xffff,%s", s.ID, goTo(tableTo)))
		t.add(tableTo, length, cookie{}, to, fmt.Sprintf("write_metadata:0x%x/0xffff0000,%s", uint32(s.ID)<<16, goTo(tableJudge)))
		if arp {
			t.add(tableFrom, length, cookie{}, fmt.Sprintf("arp,arp_spa=%s", p.Masked()), fmt.Sprintf("write_metadata:0x%x/0xffff,%s", s.ID, goTo(tableTo)))
			t.add(tableTo, length, cookie{}, fmt.Sprintf("arp,arp_tpa=%s", p.Masked()), fmt.Sprintf("write_metadata:0x%x/0xffff0000,%s", uint32(s.ID)<<16, goTo(tableJudge)))
		}
	}
	t.add(tableJudge, 100, cookie{}, metadata(s.ID, s.ID, false), goTo(tableReceive))
	for _, p := range s.Outside {
		from, to, _ := match(p)
		t.add(tableJudge, 90, cookie{}, metadata(s.ID, 0, false)+","+to, goTo(tableReceive))
		t.add(tableJudge, 90, cookie{}, metadata(0, s.ID, false)+","+from, goTo(tableReceive))
	}
	drop := func(reason int) cookie {
		return cookie{kind: kindDrop, reason: reason, ofSlice: true, number: uint32(s.ID)}
	}
	t.add(tableJudge, 50, drop(outside), metadata(s.ID, 0, false), "drop")
	t.add(tableJudge, 50, drop(outside), metadata(0, s.ID, false), "drop")
	// A probe whether an address is free has no sender (RFC 5227).
	t.add(tableJudge, 60, cookie{}, metadata(0, s.ID, false)+",arp,arp_spa=0.0.0.0", goTo(tableReceive))
	t.add(tableJudge, 40, drop(isolated), metadata(s.ID, 0, true), "drop")
	t.add(tableUplink, 100, cookie{kind: kindSlice, ofSlice: true, number: uint32(s.ID)}, metadata(s.ID, 0, true),
		t.metered(uint32(s.ID), s.Max, goTo(tableForward)))
}

// metadata matches who sends, and who receives where any is not said.
func metadata(from, to uint16, any bool) string {
	if any {
		return fmt.Sprintf("metadata=0x%x/0xffff", from)
	}
	return fmt.Sprintf("metadata=0x%x/0xffffffff", uint32(to)<<16|uint32(from))
}

// match matches a prefix as source and as destination.
func match(p netip.Prefix) (from, to string, v4 bool) {
	if p.Addr().Is4() {
		return "ip,nw_src=" + p.Masked().String(), "ip,nw_dst=" + p.Masked().String(), true
	}
	return "ipv6,ipv6_src=" + p.Masked().String(), "ipv6,ipv6_dst=" + p.Masked().String(), false
}
