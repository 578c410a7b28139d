package xdp

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// losesNative says why an interface would lose what a native program sends
// back out of it, or nothing. A veth takes such packets only where its far end
// has a program, too; else they lie in a ring that nobody reads
// (drivers/net/veth.c, veth_xdp_flush).
func losesNative(nic netlink.Link) string {
	if nic.Type() != "veth" {
		return ""
	}
	far, err := vethPeer(nic)
	if err != nil {
		return "" // not to be seen from here: as for any driver, what it says is believed
	}
	if x := far.Attrs().Xdp; x != nil && x.Attached {
		return ""
	}
	return "native would need an XDP program on the far end of this veth, too (" + far.Attrs().Name + ")"
}

// vethPeer reads the far end of a veth, also one in another namespace, by the
// number that this namespace knows that one by.
func vethPeer(nic netlink.Link) (netlink.Link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(nic.Attrs().ParentIndex)
	req.AddData(msg)
	if id := nic.Attrs().NetNsID; id >= 0 {
		req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(id))))
	}
	answers, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	return netlink.LinkDeserialize(nil, answers[0])
}
