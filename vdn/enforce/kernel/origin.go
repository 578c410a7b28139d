package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/ownns"
	"github.com/fairlead/fairlead/vdn"
)

// seat is the location of an attachment's device.
type seat struct {
	att   vdn.Attachment
	slice vdn.Slice
	link  netlink.Link // in the pod's namespace
	// netns is the cookie of the pod's namespace.
	netns uint64
	// below is the node's device that its frames pass next: the parent of a macvlan or
	// ipvlan device, or the node's end of a veth pair. 0 without one, as below a
	// host device.
	below int
}

// look finds an attachment's device in its namespace, and the device below it on the node,
// which is the calling thread's namespace.
func look(att vdn.Attachment, slice vdn.Slice) (seat, error) {
	s := seat{att: att, slice: slice}
	err := ns.WithNetNSPath(att.NetNS, func(ns.NetNS) (err error) {
		if s.link, err = netlink.LinkByName(att.Interface); err != nil {
			return fmt.Errorf("device %s in %s: %w", att.Interface, att.NetNS, err)
		}
		s.netns, err = ownns.Cookie()
		return err
	})
	if err != nil {
		return s, err
	}
	below, err := netlink.LinkByIndex(s.link.Attrs().ParentIndex)
	switch missing := (netlink.LinkNotFoundError{}); {
	case s.link.Attrs().ParentIndex == 0 || errors.As(err, &missing):
		return s, nil // a NIC, or a link whose other end is not on the node
	case err != nil:
		return s, fmt.Errorf("the device below %s of %s: %w", att.Interface, att.ID, err)
	}
	switch s.link.Type() {
	case "macvlan", "ipvlan":
		s.below = below.Attrs().Index
	case "veth":
		// Interface indexes are per namespace: the other end's may be another device's
		// here.
		if below.Type() == "veth" && below.Attrs().ParentIndex == s.link.Attrs().Index && below.Attrs().Name == att.Device {
			s.below = below.Attrs().Index
		}
	}
	return s, nil
}

// port returns the node's end of the attachment's veth pair; 0 if it has none.
func (s seat) port() int {
	if s.link.Type() == "veth" {
		return s.below
	}
	return 0
}

// guards returns the programs that drop, at the device below, what bypassed the
// attachment's own programs.
func (s seat) guards() []string {
	switch {
	case s.below == 0:
		return nil
	case s.port() > 0:
		return []string{vdnProgPortIn}
	}
	return []string{vdnProgUplinkOut, vdnProgUplinkIn}
}

// shares reports which frames of other pods can reach the device without passing the device
// below: macvlan copies broadcast to all (drivers/net/macvlan.c, macvlan_broadcast), ipvlan
// forwards everything (drivers/net/ipvlan/ipvlan_core.c).
func (s seat) shares() (broadcast, all bool) {
	ipvlan := s.link.Type() == "ipvlan"
	return ipvlan || s.link.Type() == "macvlan", ipvlan
}

// applyNamespaces sets the namespaces whose frames must bear the stamp of their programs,
// which must already be attached.
func (k *Kernel) applyNamespaces(seats []seat) error {
	wanted := map[uint64]vdnVdnOwner{}
	for _, s := range seats {
		wanted[s.netns] = vdnVdnOwner{Slice: s.slice.ID}
	}
	return bpfmap.Hold(k.shared.Namespaces, wanted)
}

// stampsHold reports frames that reached pods since the last call without the stamp of the
// device below.
func (k *Kernel) stampsHold() error {
	refused, err := k.refused()
	if err != nil {
		return err
	}
	now := map[uint16]uint64{}
	for key, n := range refused {
		if key.Reason == vdnVdnReasonVDN_REASON_UNSTAMPED {
			now[key.Slice] += n
		}
	}
	var errs []error
	for _, s := range k.plan.Slices {
		if n := now[s.ID]; k.unstamped != nil && n > k.unstamped[s.ID] {
			errs = append(errs, fmt.Errorf("network %s: %d packets bypassed the program at the device below its pods, without whose mark pods receive no broadcast: "+
				"another program at that device's ingress ends the chain (TC_ACT_OK): make it return TC_ACT_UNSPEC, or remove it", s.Name, n-k.unstamped[s.ID]))
		}
	}
	k.unstamped = now
	return errors.Join(errs...)
}

// findCookies configures in the programs where the kernel stores a network namespace's cookie, if
// it has no helper for that. It returns an error if it cannot.
func findCookies(spec *ebpf.CollectionSpec) error {
	helper, _ := features.Lookup(features.NetnsCookie)
	if helper.Probe(features.VDN) == nil {
		return nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("types of the kernel (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	net, err := offsetOf(kernel, "sock_common", "skc_net") // struct sock begins with sock_common
	if err != nil {
		return err
	}
	cookie, err := offsetOf(kernel, "net", "net_cookie")
	if err != nil {
		return err
	}
	return errors.Join(spec.Variables[vdnVarSockNetAt].Set(net), spec.Variables[vdnVarNetCookieAt].Set(cookie))
}

// offsetOf returns the offset of a struct member, in bytes.
func offsetOf(kernel *btf.Spec, structure, member string) (uint32, error) {
	var s *btf.Struct
	if err := kernel.TypeByName(structure, &s); err != nil {
		return 0, fmt.Errorf("struct %s of this kernel: %w", structure, err)
	}
	for _, m := range s.Members {
		if m.Name == member {
			return m.Offset.Bytes(), nil
		}
	}
	return 0, fmt.Errorf("struct %s of this kernel has no %s", structure, member)
}

// degraded describes what is lost. Either of two ways to identify a pod's namespace is
// enough.
func degraded(missing features.Missing, unknown error) (words []string) {
	for _, d := range missing {
		f, _ := features.Lookup(d.Feature)
		if !f.Silent {
			words = append(words, d.String())
		}
	}
	switch memory := missing.Err(features.KernelMemory); {
	case !missing.Has(features.NetnsCookie):
	case memory != nil:
		words = append(words, bypassable+memory.Error())
	case unknown != nil:
		words = append(words, bypassable+unknown.Error())
	}
	return words
}

const bypassable = "what a container with CAP_NET_RAW sends past the programs at its device (PACKET_QDISC_BYPASS, AF_XDP) is not dropped: drop that capability from pods; "
