package device

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// LosesNative returns why an interface would lose packets that a native program sends
// back out of it, or an empty string. A veth accepts such packets only while its peer
// polls for them, which requires GRO or an XDP program there (drivers/net/veth.c,
// veth_xdp_xmit). It then advertises the redirect target feature. Kernels before 6.3 do
// not report it: they are trusted, like any other driver.
func LosesNative(nic netlink.Link) string {
	if nic.Type() != "veth" {
		return ""
	}
	if features, err := Features(nic); err != nil || features&featureRedirectTarget != 0 {
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

// genlHeader is struct genlmsghdr (linux/genetlink.h): command, version and a reserved
// part that must be zero, which the library does not initialize.
type genlHeader [4]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// Features returns the native XDP features of an interface: NETDEV_XDP_ACT_* of
// linux/netdev.h (Documentation/netlink/specs/netdev.yaml).
func Features(nic netlink.Link) (uint64, error) {
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
	return 0, errors.New("the kernel does not report it")
}
