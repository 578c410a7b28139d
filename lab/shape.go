package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// minBurst is two full packets of the largest MTU in use, so that no packet is
// larger than the bucket.
const minBurst = 2 * 1700

// queueLimit is the queue length of a shaper, in bytes.
const queueLimit = 256 << 10

// shape attaches an end's shaper.
func shape(h *netlink.Handle, dev netlink.Link, s Shape) error {
	switch {
	case s.Rate == 0:
		return nil
	case len(s.Classes) == 0:
		return addTBF(h, dev, s)
	}
	return addHTB(h, dev, s)
}

// Reshape replaces an interface's shaper, or removes it.
func (h *Host) Reshape(dev string, s Shape) error {
	found, err := h.link.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("host %s: %s: %w", h.Name(), dev, err)
	}
	root := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: found.Attrs().Index, Parent: netlink.HANDLE_ROOT}}
	// If it only has the kernel's default, there is nothing to delete.
	if err := h.link.QdiscDel(root); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("host %s: %s: take its shaper away: %w", h.Name(), dev, err)
	}
	if err := shape(h.link, found, s); err != nil {
		return fmt.Errorf("host %s: %s: %w", h.Name(), dev, err)
	}
	return nil
}

// bytesPerSecond and burst convert a Shape's values for the kernel.
func bytesPerSecond(bits uint64) uint64 { return bits / 8 }

func (s Shape) burst() uint32 {
	if s.Burst != 0 {
		return s.Burst
	}
	return max(uint32(bytesPerSecond(s.Rate)/100), minBurst)
}

func addTBF(h *netlink.Handle, dev netlink.Link, s Shape) error {
	rate := bytesPerSecond(s.Rate)
	err := h.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: dev.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		},
		Rate:   rate,
		Limit:  queueLimit,
		Buffer: netlink.Xmittime(rate, s.burst()),
	})
	if err != nil {
		return fmt.Errorf("TBF: %w", err)
	}
	return nil
}

// addHTB creates one class for the total rate, and as its children one for each Class and
// one for the rest.
func addHTB(h *netlink.Handle, dev netlink.Link, s Shape) error {
	const rest = 0xffff
	index := dev.Attrs().Index
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	qdisc := netlink.NewHtb(attrs)
	qdisc.Defcls = rest
	if err := h.QdiscAdd(qdisc); err != nil {
		return fmt.Errorf("HTB: %w", err)
	}
	addClass := func(parent, minor uint16, rate, ceil uint64) error {
		c := netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Parent: netlink.MakeHandle(1, parent), Handle: netlink.MakeHandle(1, minor)},
			netlink.HtbClassAttrs{Rate: rate, Ceil: ceil, Buffer: s.burst(), Cbuffer: s.burst(), Quantum: minBurst},
		)
		if err := h.ClassAdd(c); err != nil {
			return fmt.Errorf("HTB class 1:%x: %w", minor, err)
		}
		return nil
	}
	if err := addClass(0, 1, s.Rate, s.Rate); err != nil {
		return err
	}
	left := s.Rate
	for i, c := range s.Classes {
		minor := uint16(i + 2)
		ceil := c.Ceil
		if ceil == 0 {
			ceil = s.Rate
		}
		if err := addClass(1, minor, c.Rate, ceil); err != nil {
			return err
		}
		if err := classify(h, index, netip.MustParsePrefix(c.To), minor); err != nil {
			return err
		}
		left -= min(left, c.Rate)
	}
	return addClass(1, rest, max(left, s.Rate/100), s.Rate)
}

// classify sends an IPv4 destination to a class, with the u32 classifier: the destination
// is the word at offset 16 (RFC 791).
func classify(h *netlink.Handle, index int, to netip.Prefix, minor uint16) error {
	mask := net.CIDRMask(to.Bits(), 32)
	err := h.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.MakeHandle(1, 0), Priority: 1, Protocol: unix.ETH_P_IP,
		},
		ClassId: netlink.MakeHandle(1, minor),
		Sel: &netlink.TcU32Sel{
			Flags: netlink.TC_U32_TERMINAL,
			Keys: []netlink.TcU32Key{{
				Mask: binary.BigEndian.Uint32(mask),
				Val:  binary.BigEndian.Uint32(to.Masked().Addr().AsSlice()),
				Off:  16,
			}},
		},
	})
	if err != nil {
		return fmt.Errorf("classifier for %s: %w", to, err)
	}
	return nil
}
