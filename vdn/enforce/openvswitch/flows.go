package openvswitch

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// Flow tables in pipeline order. The metadata field has the sender's slice in its lowest 16
// bits and the receiver's slice in the next 16.
const (
	tableGuard   = iota // drop what a port's pods may not send
	tableFrom           // find the source's slice
	tableTo             // find the destination's slice
	tableJudge          // check the permission
	tableReceive        // deliver to a pod on this node
	tableUplink         // count and cap what a slice sends elsewhere
	tableForward        // forward as a learning switch
)

// kind is what a flow counts, as its cookie says.
type kind uint64

const (
	kindNone kind = iota
	kindSent
	kindReceived
	kindSlice
	kindDrop
)

// cookie identifies flows for counting: whose (the slot of an attachment, or the number of
// a slice if ofSlice), what, and why dropped.
type cookie struct {
	kind    kind
	reason  int // index in reasons
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

// mark is the first byte of our cookies.
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

// translation is a plan converted to OpenFlow.
type translation struct {
	flows  []string
	meters map[uint32]vdn.Rate
	slots  map[uint32]vdn.Attachment
	err    error
}

// A slice's meter has the slice's number. Meters of attachments begin here, one for what it
// sends and one for what it receives.
const (
	meterSends    = 1 << 16
	meterReceives = 2 << 16
)

// translate is pure: the same plan yields the same flows, and an attachment keeps its
// numbers when others are added or removed. others are the ports that are not pods',
// including uplinks.
func translate(all []vdn.Slice, local []vdn.Attachment, uplinks, others []string) *translation {
	t := &translation{meters: map[uint32]vdn.Rate{}, slots: slotsOf(local)}
	if len(all) == 0 {
		t.flows = []string{"priority=0,actions=NORMAL"}
		return t
	}
	slices.Sort(others)
	for _, table := range []int{tableGuard, tableFrom, tableTo, tableReceive, tableUplink} {
		t.add(table, 0, cookie{}, "", goTo(table+1))
	}
	t.add(tableJudge, 0, cookie{}, "", goTo(tableReceive))
	t.add(tableForward, 0, cookie{}, "", "NORMAL")
	known := enforce.ByName(all)
	unknown := map[string]uint32{}
	for _, slot := range slices.Sorted(maps.Keys(t.slots)) {
		a := t.slots[slot]
		s, ok := known[a.Network]
		if !ok {
			t.err = errors.Join(t.err, &enforce.AttachmentError{ID: a.ID, Err: fmt.Errorf("network %s is not in the plan", a.Network)})
			continue
		}
		if err := t.attachment(slot, a, s); err != nil {
			t.err = errors.Join(t.err, &enforce.AttachmentError{ID: a.ID, Err: err})
		}
		if _, there := unknown[a.Device]; !there {
			unknown[a.Device] = slot
		}
	}
	// Unknown senders behind a port are counted for the first attachment of that port.
	for device, slot := range unknown {
		t.add(tableGuard, 100, cookie{kind: kindDrop, reason: spoofed, number: slot}, "in_port="+device, "drop")
	}
	for _, s := range all {
		t.slice(s)
	}
	pairs := enforce.Reach(all)
	for pair := range pairs {
		t.add(tableJudge, 100, cookie{}, metadata(pair[0], pair[1], false), goTo(tableReceive))
	}
	t.neighbors()
	t.groups(all, known, pairs, others)
	for _, u := range uplinks {
		t.add(tableUplink, 200, cookie{}, "in_port="+u, goTo(tableForward))
	}
	slices.Sort(t.flows)
	return t
}

// ofLink are destinations that routers do not forward.
var ofLink = []string{"ff02::/16", "fe80::/10"}

// neighbors permits neighbor discovery to multicast groups, which belong to no slice, and
// from addresses of no slice, and the multicast listener reports that it needs. Neighbor
// discovery is only valid with hop limit 255 (RFC 4861, 6.1 and 7.1). Table 0 has validated
// what pods send. Whether a pod may solicit an address depends on the slice of that
// address.
func (t *translation) neighbors() {
	const nd = "icmp6,nw_ttl=255,icmp_type="
	for _, dst := range ofLink {
		for _, kind := range []string{"133", "134", "136", "137", "135,nd_target=fe80::/10"} {
			t.add(tableJudge, 200, cookie{}, nd+kind+",ipv6_dst="+dst, goTo(tableReceive))
		}
	}
	notPods := metadata(0, 0, true) + ","
	for kind := 133; kind <= 137; kind++ {
		t.add(tableJudge, 200, cookie{}, fmt.Sprintf("%s%s%d,ipv6_src=fe80::/10", notPods, nd, kind), goTo(tableReceive))
	}
	t.add(tableJudge, 200, cookie{}, notPods+nd+"135,ipv6_src=::", goTo(tableReceive))
	t.add(tableJudge, 200, cookie{}, "icmp6,icmp_type=143,nw_ttl=1,ipv6_dst=ff02::16", goTo(tableReceive))
}

// groups delivers multicast and broadcast, except neighbor discovery, only to pods whose
// slices may communicate with the sender's: a learning switch would flood it.
func (t *translation) groups(all []vdn.Slice, known map[string]vdn.Slice, pairs map[[2]uint16]bool, others []string) {
	const many = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"
	for _, kind := range []int{133, 134, 135, 136, 137, 143} {
		t.add(tableForward, 110, cookie{}, fmt.Sprintf("%s,icmp6,icmp_type=%d", many, kind), "NORMAL")
	}
	for _, proto := range []string{"ip", "ipv6"} {
		t.add(tableForward, 90, cookie{}, many+","+proto, output(others))
		for _, s := range all {
			ports := slices.Clone(others)
			for _, a := range t.slots {
				if to := known[a.Network].ID; to == s.ID || pairs[[2]uint16{s.ID, to}] {
					ports = append(ports, a.Device)
				}
			}
			slices.Sort(ports)
			t.add(tableForward, 100, cookie{}, metadata(s.ID, 0, true)+","+many+","+proto, output(slices.Compact(ports)))
		}
	}
}

func output(ports []string) string {
	if len(ports) == 0 {
		return "drop"
	}
	return "output:" + strings.Join(ports, ",output:")
}

func goTo(table int) string { return fmt.Sprintf("goto_table:%d", table) }

// add appends a flow.
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

// metered prepends a meter to actions if there is a cap.
func (t *translation) metered(meter uint32, most vdn.Rate, actions string) string {
	if most == 0 {
		return actions
	}
	t.meters[meter] = most
	return fmt.Sprintf("meter:%d,%s", meter, actions)
}

// attachment permits a pod to send from its own addresses, and counts what it receives.
func (t *translation) attachment(slot uint32, a vdn.Attachment, s vdn.Slice) error {
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	device := "in_port=" + a.Device
	port := fmt.Sprintf("%s,dl_src=%s,", device, mac)
	// The port determines the slice, if the address does not.
	next := t.metered(meterSends+slot, s.MaxRatePerHost, fmt.Sprintf("write_metadata:0x%x/0xffff,%s", s.ID, goTo(tableFrom)))
	allow := func(priority int, match string) {
		t.add(tableGuard, priority, cookie{kind: kindSent, number: slot}, port+match, next)
	}
	deny := func(priority, reason int, match string) {
		t.add(tableGuard, priority, cookie{kind: kindDrop, reason: reason, number: slot}, match, "drop")
	}
	own := []netip.Addr{linkLocal(mac)}
	allow(200, fmt.Sprintf("arp,arp_sha=%s,arp_spa=0.0.0.0", mac))
	for _, p := range a.Addresses {
		if addr := p.Addr(); addr.Is4() {
			allow(200, fmt.Sprintf("arp,arp_sha=%s,arp_spa=%s", mac, addr))
			allow(200, fmt.Sprintf("ip,nw_src=%s", addr))
		} else {
			allow(200, fmt.Sprintf("ipv6,ipv6_src=%s", addr))
			own = append(own, addr)
		}
	}
	t.guardNeighbors(mac, own, allow)
	deny(300, isolated, device+","+tagged)
	// Fragments could hide false neighbor discovery (RFC 6980).
	deny(290, spoofed, device+",ipv6,nw_ttl=255,ip_frag=yes")
	for kind := 133; kind <= 137; kind++ {
		deny(250, spoofed, fmt.Sprintf("%s,icmp6,icmp_type=%d", device, kind))
	}
	deny(120, isolated, fmt.Sprintf("%sipv6,ipv6_src=%s", port, own[0]))
	for _, proto := range []string{"arp", "ip", "ipv6"} {
		deny(110, spoofed, port+proto)
	}
	deny(105, isolated, strings.TrimSuffix(port, ","))
	t.add(tableReceive, 200, cookie{kind: kindDrop, reason: isolated, number: slot}, fmt.Sprintf("dl_dst=%s,%s", mac, tagged), "drop")
	t.add(tableReceive, 100, cookie{kind: kindReceived, number: slot}, "dl_dst="+mac.String(),
		t.metered(meterReceives+slot, s.MaxRatePerHost, goTo(tableForward)))
	return nil
}

// tagged matches VLAN frames: matches on their content see through the tag.
const tagged = "vlan_vid=0x1000/0x1000"

// guardNeighbors permits only neighbor discovery that is true of the pod itself. own[0] is
// its link-local address.
func (t *translation) guardNeighbors(mac net.HardwareAddr, own []netip.Addr, allow func(priority int, match string)) {
	const nowhere = "00:00:00:00:00:00" // the option is absent
	for _, from := range own {
		allow(260, fmt.Sprintf("icmp6,icmp_type=133,ipv6_src=%s", from))
		allow(260, fmt.Sprintf("icmp6,icmp_type=135,ipv6_src=::,nd_target=%s", from))
		allow(200, fmt.Sprintf("icmp6,icmp_type=143,nw_ttl=1,ipv6_src=%s,ipv6_dst=ff02::16", from))
		for _, at := range []string{mac.String(), nowhere} {
			allow(260, fmt.Sprintf("icmp6,icmp_type=135,ipv6_src=%s,nd_sll=%s", from, at))
			for _, target := range own {
				allow(260, fmt.Sprintf("icmp6,icmp_type=136,ipv6_src=%s,nd_target=%s,nd_tll=%s", from, target, at))
			}
		}
	}
	allow(200, "icmp6,icmp_type=143,nw_ttl=1,ipv6_src=::,ipv6_dst=ff02::16")
}

// linkLocal returns the link-local address that a device derives from its MAC address (RFC
// 4291).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// slice adds flows for a slice's addresses and for the peers that it may communicate with.
func (t *translation) slice(s vdn.Slice) {
	for _, p := range s.Prefixes {
		from, to := match(p)
		length := 1000 + p.Bits() // the longest prefix wins
		for _, m := range from {
			t.add(tableFrom, length, cookie{}, m, fmt.Sprintf("write_metadata:0x%x/0xffff,%s", s.ID, goTo(tableTo)))
		}
		for _, m := range to {
			t.add(tableTo, length, cookie{}, m, fmt.Sprintf("write_metadata:0x%x/0xffff0000,%s", uint32(s.ID)<<16, goTo(tableJudge)))
		}
	}
	t.add(tableJudge, 100, cookie{}, metadata(s.ID, s.ID, false), goTo(tableReceive))
	for _, p := range s.AllowedCIDRs {
		from, to := match(p)
		for _, m := range to {
			t.add(tableJudge, 90, cookie{}, metadata(s.ID, 0, false)+","+m, goTo(tableReceive))
		}
		for _, m := range from {
			t.add(tableJudge, 90, cookie{}, metadata(0, s.ID, false)+","+m, goTo(tableReceive))
		}
	}
	drop := func(reason int) cookie {
		return cookie{kind: kindDrop, reason: reason, ofSlice: true, number: uint32(s.ID)}
	}
	t.add(tableJudge, 50, drop(outside), metadata(s.ID, 0, false), "drop")
	t.add(tableJudge, 50, drop(outside), metadata(0, s.ID, false), "drop")
	// An ARP probe has no sender address (RFC 5227).
	t.add(tableJudge, 60, cookie{}, metadata(0, s.ID, false)+",arp,arp_spa=0.0.0.0", goTo(tableReceive))
	t.add(tableJudge, 40, drop(isolated), metadata(s.ID, 0, true), "drop")
	t.add(tableUplink, 100, cookie{kind: kindSlice, ofSlice: true, number: uint32(s.ID)}, metadata(s.ID, 0, true),
		t.metered(uint32(s.ID), s.MaxRate, goTo(tableForward)))
}

// metadata matches the sender's slice, and the receiver's unless any is set.
func metadata(from, to uint16, any bool) string {
	if any {
		return fmt.Sprintf("metadata=0x%x/0xffff", from)
	}
	return fmt.Sprintf("metadata=0x%x/0xffffffff", uint32(to)<<16|uint32(from))
}

// match returns matches of a prefix as source and as destination, including neighbor
// solicitations for it.
func match(p netip.Prefix) (from, to []string) {
	text := p.Masked().String()
	if p.Addr().Is4() {
		return []string{"ip,nw_src=" + text, "arp,arp_spa=" + text}, []string{"ip,nw_dst=" + text, "arp,arp_tpa=" + text}
	}
	return []string{"ipv6,ipv6_src=" + text}, []string{"ipv6,ipv6_dst=" + text, "icmp6,icmp_type=135,ipv6_dst=ff02::/16,nd_target=" + text}
}
