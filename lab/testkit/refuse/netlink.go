package refuse

import (
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// socketMatcher matches socket(2) for a netlink protocol.
type socketMatcher uint32

func (m socketMatcher) watch(f *filter) { f.protocols = append(f.protocols, uint32(m)) }

func (m socketMatcher) matches(c *call) bool {
	return c.nr == unix.SYS_SOCKET && uint32(c.args[0]) == unix.AF_NETLINK && uint32(c.args[2]) == uint32(m)
}

// messageMatcher matches messages sent to a netlink socket.
type messageMatcher struct {
	protocol int
	use      func(message) bool
}

func (m messageMatcher) watch(f *filter) { f.sends = true }

// matches checks the socket last, because that costs most and few messages match.
func (m messageMatcher) matches(c *call) bool {
	if c.nr != unix.SYS_SENDTO && c.nr != unix.SYS_SENDMSG {
		return false
	}
	for msg := range messages(c.payload()) {
		if m.use(msg) {
			return c.netlinkProtocol() == m.protocol
		}
	}
	return false
}

// message is a netlink message without its header.
type message struct {
	kind uint16
	body []byte
}

// messages returns the complete messages.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= unix.SizeofNlMsghdr {
			size := binary.NativeEndian.Uint32(b)
			if size < unix.SizeofNlMsghdr || uint64(size) > uint64(len(b)) {
				return
			}
			if !yield(message{binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size]}) {
				return
			}
			b = b[min(align(int(size)), len(b)):]
		}
	}
}

// align rounds up like NLMSG_ALIGN and NLA_ALIGN.
func align(n int) int { return (n + 3) &^ 3 }

// attribute returns the value of an attribute, nil if it is missing. header is the length
// of what precedes the attributes.
func (m message) attribute(header int, kind uint16) []byte {
	const typeMask = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	for b := m.body[min(align(header), len(m.body)):]; len(b) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&typeMask == kind {
			return b[unix.SizeofNlAttr:size]
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

func text(attribute []byte) string { return strings.TrimRight(string(attribute), "\x00") }

// Lengths of the headers before attributes, and a constant that package unix lacks.
const (
	sizeofNhMsg    = 8  // struct nhmsg
	sizeofTcMsg    = 20 // struct tcmsg
	sizeofGenlMsg  = 4  // struct genlmsghdr
	groupResilient = 1  // NEXTHOP_GRP_TYPE_RES
)

// netlinkFeatures are those with a fixed name.
var netlinkFeatures = map[string]matcher{
	"nexthop":           messageMatcher{unix.NETLINK_ROUTE, func(m message) bool { return m.kind == unix.RTM_NEWNEXTHOP }},
	"nexthop-resilient": messageMatcher{unix.NETLINK_ROUTE, isResilientGroup},
	"qdisc-htb":         newQdisc("htb"),
	"qdisc-clsact":      newQdisc("clsact"),
	"inet-diag":         socketMatcher(unix.NETLINK_INET_DIAG),
	"inet-diag-destroy": messageMatcher{unix.NETLINK_INET_DIAG, func(m message) bool { return m.kind == unix.SOCK_DESTROY }},
	"netfilter":         socketMatcher(unix.NETLINK_NETFILTER),
}

// genericPrefix is the prefix of generic netlink families' names.
const genericPrefix = "generic:"

func netlinkNames() []string {
	return append(slices.Sorted(maps.Keys(netlinkFeatures)), genericPrefix+"FAMILY")
}

func parseNetlink(name string) (matcher, []string) {
	if family, ok := strings.CutPrefix(name, genericPrefix); ok && family != "" {
		return getFamily(family), nil
	}
	if m, ok := netlinkFeatures[name]; ok {
		return m, nil
	}
	return nil, netlinkNames()
}

func isResilientGroup(m message) bool {
	if m.kind != unix.RTM_NEWNEXTHOP {
		return false
	}
	group := m.attribute(sizeofNhMsg, unix.NHA_GROUP_TYPE)
	return len(group) >= 2 && binary.NativeEndian.Uint16(group) == groupResilient
}

func newQdisc(kind string) matcher {
	return messageMatcher{unix.NETLINK_ROUTE, func(m message) bool {
		return m.kind == unix.RTM_NEWQDISC && text(m.attribute(sizeofTcMsg, unix.TCA_KIND)) == kind
	}}
}

// getFamily matches the query for a family's ID, without which a program cannot talk to
// it.
func getFamily(family string) matcher {
	return messageMatcher{unix.NETLINK_GENERIC, func(m message) bool {
		return m.kind == unix.GENL_ID_CTRL && len(m.body) > 0 && m.body[0] == unix.CTRL_CMD_GETFAMILY &&
			strings.EqualFold(text(m.attribute(sizeofGenlMsg, unix.CTRL_ATTR_FAMILY_NAME)), family)
	}}
}
