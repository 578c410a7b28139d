package router

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
)

// Next-hop objects of rtnetlink (Linux's include/uapi/linux/nexthop.h), which the netlink
// library does not support.
const (
	nhaID        = 1
	nhaGroup     = 2
	nhaGroupType = 3
	nhaOIF       = 5
	nhaGateway   = 6
	nhaResGroup  = 12
	nhaResBucket = 13

	resBuckets         = 1
	resIdleTimer       = 2
	resUnbalancedTimer = 3

	resBucketIndex = 1
	resBucketNhID  = 3

	groupPlain     = 0
	groupResilient = 1

	sizeofNhmsg = 8
)

// member is a member of a group; weights range from 1 to 256.
type member struct {
	id     uint32
	weight int
}

type group struct {
	members   []member
	resilient bool
}

// nexthop is an object as listed by the kernel: a hop, or the members of a group.
type nexthop struct {
	id        uint32
	protocol  uint8
	hop       hop
	members   []member
	resilient bool
}

// nhmsg is struct nhmsg: family, scope, protocol, reserved, flags.
type nhmsg [sizeofNhmsg]byte

func (m nhmsg) Len() int          { return sizeofNhmsg }
func (m nhmsg) Serialize() []byte { return m[:] }

func newNhmsg(family, protocol uint8) nhmsg { return nhmsg{0: family, 2: protocol} }

func (t *Table) execute(req *nl.NetlinkRequest, reply uint16) ([][]byte, error) {
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: t.sock}
	return req.Execute(unix.NETLINK_ROUTE, reply)
}

// dump repeats a listing that was interrupted by changes. It disables extended acks: at
// the end of a listing, they do not contain the request, which the netlink library
// assumes.
func (t *Table) dump(build func() *nl.NetlinkRequest, reply uint16) ([][]byte, error) {
	_ = t.sock.Socket.SetExtAck(false)
	defer func() { _ = t.sock.Socket.SetExtAck(true) }()
	return netlist.Whole(func() ([][]byte, error) { return t.execute(build(), reply) })
}

func (t *Table) listNexthops() ([]nexthop, error) {
	msgs, err := t.dump(func() *nl.NetlinkRequest {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
		req.AddData(newNhmsg(unix.AF_UNSPEC, 0))
		return req
	}, unix.RTM_NEWNEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("list next hops: %w", err)
	}
	out := make([]nexthop, 0, len(msgs))
	for _, m := range msgs {
		o, err := parseNexthop(m)
		if err != nil {
			return nil, fmt.Errorf("list next hops: %w", err)
		}
		out = append(out, o)
	}
	return out, nil
}

// least is the minimum size of numeric attributes, in bytes.
var least = map[uint16]int{nhaID: 4, nhaOIF: 4, nhaGroupType: 2}

func parseNexthop(m []byte) (nexthop, error) {
	if len(m) < sizeofNhmsg {
		return nexthop{}, unix.EINVAL
	}
	o := nexthop{protocol: m[2]}
	o.hop.onlink = nl.NativeEndian().Uint32(m[4:])&unix.RTNH_F_ONLINK != 0
	padded := append(slices.Clip(m[sizeofNhmsg:]), make([]byte, -len(m)&3)...) // the library reads beyond an unaligned end
	attrs, err := nl.ParseRouteAttr(padded)
	if err != nil {
		return o, err
	}
	native := nl.NativeEndian()
	for _, a := range attrs {
		kind := a.Attr.Type &^ unix.NLA_F_NESTED
		if len(a.Value) < least[kind] {
			return o, unix.EINVAL
		}
		switch kind {
		case nhaID:
			o.id = native.Uint32(a.Value)
		case nhaOIF:
			o.hop.oif = int(native.Uint32(a.Value))
		case nhaGateway:
			o.hop.gateway, _ = netip.AddrFromSlice(a.Value)
		case nhaGroupType:
			o.resilient = native.Uint16(a.Value) == groupResilient
		case nhaGroup:
			o.members = parseMembers(a.Value)
		}
	}
	return o, nil
}

// parseMembers parses an array of struct nexthop_grp: ID, weight minus one, its high
// byte, reserved.
func parseMembers(b []byte) []member {
	native := nl.NativeEndian()
	out := make([]member, 0, len(b)/8)
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, member{id: native.Uint32(b), weight: int(b[4]) + 1})
	}
	return out
}

func (t *Table) addHop(id uint32, h hop) error {
	family := uint8(unix.AF_INET6)
	if h.gateway.Is4() {
		family = unix.AF_INET
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	msg := newNhmsg(family, t.c.Protocol)
	if h.onlink {
		nl.NativeEndian().PutUint32(msg[4:], unix.RTNH_F_ONLINK)
	}
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(nhaID, nl.Uint32Attr(id)))
	req.AddData(nl.NewRtAttr(nhaOIF, nl.Uint32Attr(uint32(h.oif))))
	req.AddData(nl.NewRtAttr(nhaGateway, h.gateway.AsSlice()))
	_, err := t.execute(req, 0)
	return err
}

// putGroup creates a group, or changes an existing one in place: the kernel then only
// moves the buckets of members that left, and as many as new members need.
func (t *Table) putGroup(id uint32, members []member, replace bool) error {
	flags := unix.NLM_F_CREATE | unix.NLM_F_EXCL
	if replace {
		flags = unix.NLM_F_REPLACE
	}
	var list []byte
	for _, m := range members {
		list = append(list, nl.Uint32Attr(m.id)...)
		list = append(list, byte(m.weight-1), 0, 0, 0)
	}
	kind := uint16(groupResilient)
	if t.plain != "" {
		kind = groupPlain
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, flags|unix.NLM_F_ACK)
	req.AddData(newNhmsg(unix.AF_UNSPEC, t.c.Protocol))
	req.AddData(nl.NewRtAttr(nhaID, nl.Uint32Attr(id)))
	req.AddData(nl.NewRtAttr(nhaGroup, list))
	req.AddData(nl.NewRtAttr(nhaGroupType, nl.Uint16Attr(kind)))
	if kind == groupResilient {
		res := nl.NewRtAttr(nhaResGroup|unix.NLA_F_NESTED, nil)
		// The number of buckets is immutable, but the kernel still requires it.
		res.AddRtAttr(resBuckets, nl.Uint16Attr(t.c.Buckets))
		res.AddRtAttr(resIdleTimer, nl.Uint32Attr(clockTicks(t.c.IdleTimer)))
		res.AddRtAttr(resUnbalancedTimer, nl.Uint32Attr(clockTicks(t.c.UnbalancedTimer)))
		req.AddData(res)
	}
	_, err := t.execute(req, 0)
	return err
}

// clockTicks converts to the kernel's clock_t: hundredths of a second.
func clockTicks(d time.Duration) uint32 {
	return uint32(min(int64(d/(10*time.Millisecond)), math.MaxUint32))
}

func (t *Table) deleteNexthop(id uint32) error {
	req := nl.NewNetlinkRequest(unix.RTM_DELNEXTHOP, unix.NLM_F_ACK)
	req.AddData(newNhmsg(unix.AF_UNSPEC, 0))
	req.AddData(nl.NewRtAttr(nhaID, nl.Uint32Attr(id)))
	_, err := t.execute(req, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove next hop %d: %w", id, err)
	}
	return nil
}

// Buckets returns the next hop of each bucket of a prefix's group. It is informational,
// and empty for a plain group.
func (t *Table) Buckets(p netip.Prefix) ([]netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.read()
	if err != nil {
		return nil, fmt.Errorf("fib: %w", err)
	}
	if id, exists := k.routes[p]; exists && k.groups[id].resilient {
		return t.buckets(k, id)
	}
	return nil, nil
}

func (t *Table) buckets(k *kernel, id uint32) ([]netip.Addr, error) {
	msgs, err := t.dump(func() *nl.NetlinkRequest {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOPBUCKET, unix.NLM_F_DUMP)
		req.AddData(newNhmsg(unix.AF_UNSPEC, 0))
		req.AddData(nl.NewRtAttr(nhaID, nl.Uint32Attr(id)))
		return req
	}, unix.RTM_NEWNEXTHOPBUCKET)
	if err != nil {
		return nil, fmt.Errorf("fib: list buckets: %w", err)
	}
	out := make([]netip.Addr, len(msgs))
	native := nl.NativeEndian()
	for _, m := range msgs {
		attrs, err := nl.ParseRouteAttrAsMap(m[sizeofNhmsg:])
		if err != nil {
			return nil, fmt.Errorf("fib: list buckets: %w", err)
		}
		nested, ok := attrs[nhaResBucket|unix.NLA_F_NESTED]
		if !ok {
			nested = attrs[nhaResBucket]
		}
		in, err := nl.ParseRouteAttrAsMap(nested.Value)
		if err != nil {
			return nil, fmt.Errorf("fib: list buckets: %w", err)
		}
		index, nh := in[resBucketIndex].Value, in[resBucketNhID].Value
		if len(index) == 2 && len(nh) == 4 && int(native.Uint16(index)) < len(out) {
			out[native.Uint16(index)] = k.hopOf[native.Uint32(nh)].gateway
		}
	}
	return out, nil
}
