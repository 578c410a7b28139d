package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/vdn"
)

// applyRates configures HTB for the slices at the uplinks, and removes it elsewhere.
func (k *Kernel) applyRates(links []uplink, slices []vdn.Slice) error {
	var errs []error
	keep := map[int]bool{}
	for _, u := range links {
		if len(slices) == 0 {
			continue
		}
		keep[u.link.Attrs().Index] = true
		wanted, err := classes(u.Uplink, slices)
		if err = errors.Join(err, share(u, wanted)); err != nil {
			errs = append(errs, fmt.Errorf("uplink %s: %w", u.Device, err))
		}
	}
	return errors.Join(append(errs, removeRates(keep))...)
}

// share configures HTB with these classes at an uplink.
func share(u uplink, wanted []class) error {
	if err := root(u.link); err != nil {
		return err
	}
	held, err := classesOf(u.link)
	if err != nil {
		return err
	}
	leaves, err := leavesOf(u.link)
	if err != nil {
		return err
	}
	var errs []error
	keep := map[uint16]bool{}
	for _, c := range wanted {
		keep[c.minor] = true
		want := c.htb(u)
		have := held[c.minor]
		changed := have == nil || have.Rate != want.Rate || have.Ceil != want.Ceil || have.Quantum != want.Quantum
		if changed {
			errs = append(errs, explain(netlink.ClassReplace(want), "HTB class of", c.minor))
		}
		if c.minor != rootClass && (changed || !leaves[c.minor]) {
			errs = append(errs, explain(c.addLeaf(u.link), "queue of HTB class", c.minor))
		}
	}
	for minor, have := range held {
		if !keep[minor] {
			errs = append(errs, explain(netlink.ClassDel(have), "HTB class of", minor))
		}
	}
	return errors.Join(errs...)
}

func explain(err error, what string, minor uint16) error {
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("%s slice %d: %w", what, int(minor)-1, err)
}

// isOurs identifies our HTB qdisc by its handle.
func isOurs(q netlink.Qdisc) bool {
	a := q.Attrs()
	return q.Type() == "htb" && a.Parent == netlink.HANDLE_ROOT && a.Handle == netlink.MakeHandle(major, 0)
}

// root makes HTB the root qdisc of the device.
func root(link netlink.Link) error {
	all, err := netlist.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return fmt.Errorf("list its queues: %w", err)
	}
	for _, q := range all {
		if isOurs(q) && q.(*netlink.Htb).Defcls == restClass {
			return nil
		}
	}
	qdisc := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(major, 0), Parent: netlink.HANDLE_ROOT,
	})
	qdisc.Defcls = restClass
	if err := netlink.QdiscReplace(qdisc); err != nil {
		return fmt.Errorf("HTB (CONFIG_NET_SCH_HTB): %w", err)
	}
	return nil
}

func (c class) htb(u uplink) *netlink.HtbClass {
	parent := uint32(netlink.MakeHandle(major, rootClass))
	if c.minor == rootClass {
		parent = netlink.MakeHandle(major, 0)
	}
	return netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: u.link.Attrs().Index, Parent: parent, Handle: netlink.MakeHandle(major, c.minor)},
		netlink.HtbClassAttrs{Rate: c.rate, Ceil: c.ceil, Buffer: burst(c.rate), Cbuffer: burst(c.ceil), Quantum: quantum(uint64(u.Rate))},
	)
}

// classesOf returns the classes of our HTB at a device.
func classesOf(link netlink.Link) (map[uint16]*netlink.HtbClass, error) {
	all, err := netlist.Whole(func() ([]netlink.Class, error) { return netlink.ClassList(link, 0) })
	if err != nil {
		return nil, fmt.Errorf("list its classes: %w", err)
	}
	found := map[uint16]*netlink.HtbClass{}
	for _, c := range all {
		htb, ok := c.(*netlink.HtbClass)
		if maj, minor := netlink.MajorMinor(c.Attrs().Handle); ok && maj == major {
			found[minor] = htb
		}
	}
	return found, nil
}

// leavesOf returns which classes have our queue.
func leavesOf(link netlink.Link) (map[uint16]bool, error) {
	all, err := netlist.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return nil, fmt.Errorf("list its queues: %w", err)
	}
	found := map[uint16]bool{}
	for _, q := range all {
		if maj, minor := netlink.MajorMinor(q.Attrs().Parent); maj == major && q.Type() == "bfifo" {
			found[minor] = true
		}
	}
	return found, nil
}

// addLeaf adds a queue to a class that is limited in bytes: a limit in packets would buffer
// up to a second of GSO packets. The netlink library does not support its options (struct
// tc_fifo_qopt).
func (c class) addLeaf(link netlink.Link) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(link.Attrs().Index), Parent: netlink.MakeHandle(major, c.minor),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bfifo")))
	req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, nl.Uint32Attr(backlog(c.ceil))))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// removeRates removes our HTB from all devices except those to keep.
func removeRates(keep map[int]bool) error {
	links, err := netlist.Whole(netlink.LinkList)
	errs := []error{err}
	for _, link := range links {
		if keep[link.Attrs().Index] {
			continue
		}
		all, err := netlist.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
		if err != nil {
			continue // the device is gone
		}
		for _, q := range all {
			if !isOurs(q) {
				continue
			}
			if err := netlink.QdiscDel(q); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("HTB of %s: %w", link.Attrs().Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
