package xdp

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// losesNative says why an interface would lose what a native program sends
// back out of it, or nothing. A veth takes such packets only while its far end
// polls for them, which it does with GRO on or with a program of its own
// (drivers/net/veth.c, veth_xdp_xmit); what it then says of itself is that
// packets may be redirected to it. Kernels before 6.3 do not tell: they are
// believed, as any other driver is.
func losesNative(nic netlink.Link) string {
	if nic.Type() != "veth" {
		return ""
	}
	if features, err := DeviceFeatures(nic); err != nil || features&featureRedirectTarget != 0 {
		return ""
	}
	return "native would need GRO on, or an XDP program, at the far end of this veth"
}

// featureBasic and featureRedirectTarget are NETDEV_XDP_ACT_BASIC and
// NETDEV_XDP_ACT_NDO_XMIT (linux/netdev.h).
const (
	featureBasic          = 1 << 0
	featureRedirectTarget = 1 << 2
)

// genlHeader is struct genlmsghdr (linux/genetlink.h): command, version and a
// reserved part that must be zero, which the library leaves to chance.
type genlHeader [4]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// DeviceFeatures asks what an interface can do with native XDP: NETDEV_XDP_ACT_* of
// linux/netdev.h (Documentation/netlink/specs/netdev.yaml).
func DeviceFeatures(nic netlink.Link) (uint64, error) {
	const cmdDevGet, attrIfindex, attrXDPFeatures = 1, 1, 3
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return 0, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	req.AddData(genlHeader{cmdDevGet, 1})
	req.AddData(nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(nic.Attrs().Index))))
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, err
	}
	attrs, err := nl.ParseRouteAttr(answers[0][nl.SizeofGenlmsg:])
	if err != nil {
		return 0, err
	}
	for _, a := range attrs {
		if a.Attr.Type == attrXDPFeatures && len(a.Value) == 8 {
			return binary.NativeEndian.Uint64(a.Value), nil
		}
	}
	return 0, errors.New("the kernel does not say")
}
