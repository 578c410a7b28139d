package tc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/netlist"
)

// clsact attaches filters on kernels without tcx. A filter outlives its process and is
// found again by name.
type clsact struct {
	nl     *netlink.Handle
	progs  Programs
	points map[Point]bool
}

// Identification of our filters: arbitrary values that must never change, because filters
// are found and replaced by them.
const (
	filterPriority = 0xfa1e
	filterPrefix   = "fairlead_"
)

// OpenClsact uses clsact filters even if the kernel supports tcx.
func OpenClsact(_ *bpffs.Dir, progs Programs) (Hook, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	c := &clsact{nl: nl, progs: progs, points: map[Point]bool{}}
	links, err := netlist.Whole(nl.LinkList)
	if err != nil {
		c.Close()
		return nil, err
	}
	for _, l := range links {
		if err := c.adopt(l.Attrs().Index); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// adopt finds a predecessor's filters on a device and replaces their programs with ours.
func (c *clsact) adopt(ifindex int) error {
	filters, err := c.filters(ifindex)
	if err != nil {
		return err
	}
	for _, f := range filters {
		p := Point{Device: ifindex, Program: programOf(f)}
		if _, ours := c.progs[p.Program]; ours {
			if err := c.attach(p); err != nil {
				return err
			}
		} else if c.progs.haveRange(f.Handle) {
			// A filter of another release, with a program that this one lacks.
			if err := c.nl.FilterDel(f); err != nil && !gone(err) && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return nil
}

// handlesEach is the size of a caller's handle range: 1 to 9, 11 to 19 and so on.
const handlesEach = 10

// haveRange reports whether handle is in the caller's range.
func (progs Programs) haveRange(handle uint32) bool {
	for _, p := range progs {
		if p.Handle/handlesEach == handle/handlesEach {
			return true
		}
	}
	return false
}

// attached returns the IDs of the programs attached by filters with these names.
func (c *clsact) attached(progs Programs) (programs []ebpf.ProgramID, err error) {
	links, err := netlist.Whole(c.nl.LinkList)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		filters, err := c.filters(l.Attrs().Index)
		if err != nil {
			return nil, err
		}
		for _, f := range filters {
			if _, has := progs[programOf(f)]; has {
				programs = append(programs, ebpf.ProgramID(f.Id))
			}
		}
	}
	return programs, nil
}

// programOf returns the program name of one of our filters.
func programOf(f *netlink.BpfFilter) string { return strings.TrimPrefix(f.Name, filterPrefix) }

// filters lists our filters on both sides of a device.
func (c *clsact) filters(ifindex int) ([]*netlink.BpfFilter, error) {
	all, err := c.all(ifindex)
	var ours []*netlink.BpfFilter
	for _, f := range all {
		if IsOurs(f) {
			ours = append(ours, f.(*netlink.BpfFilter))
		}
	}
	return ours, err
}

// IsOurs reports whether a clsact filter belongs to Fairlead.
func IsOurs(f netlink.Filter) bool {
	bpf, ok := f.(*netlink.BpfFilter)
	return ok && bpf.Priority == filterPriority && strings.HasPrefix(bpf.Name, filterPrefix)
}

// all lists all filters on both sides of a device. A device without clsact has none.
func (c *clsact) all(ifindex int) ([]netlink.Filter, error) {
	var all []netlink.Filter
	dev := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlist.Whole(func() ([]netlink.Filter, error) { return c.nl.FilterList(dev, parent) })
		if gone(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, filters...)
	}
	return all, nil
}

func (c *clsact) Keep(wanted map[Point]bool) error {
	var errs []error
	for p := range c.points {
		if !wanted[p] {
			errs = append(errs, c.detach(p))
		}
	}
	for p := range wanted {
		// Including attached ones: someone may have removed the qdisc.
		errs = append(errs, c.attach(p))
	}
	return errors.Join(errs...)
}

func (c *clsact) attach(p Point) error {
	err := c.nl.QdiscAdd(p.qdisc())
	if err == nil || errors.Is(err, unix.EEXIST) {
		err = c.nl.FilterReplace(c.filter(p))
	}
	if gone(err) {
		delete(c.points, p)
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", p.Program, DeviceName(p.Device), err)
	}
	c.points[p] = true
	return nil
}

func (c *clsact) filter(p Point) *netlink.BpfFilter {
	prog := c.progs[p.Program]
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: p.Device, Parent: prog.parent(), Handle: prog.Handle,
			Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: prog.FD(), Name: filterPrefix + p.Program, DirectAction: true,
	}
}

func (p Program) parent() uint32 {
	if p.Ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// detach removes a filter.
func (c *clsact) detach(p Point) error {
	delete(c.points, p)
	err := c.nl.FilterDel(c.filter(p))
	if gone(err) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach %s from %s: %w", p.Program, DeviceName(p.Device), err)
	}
	return c.tidy(p.Device)
}

// tidy removes the qdisc if no filters are left.
func (c *clsact) tidy(ifindex int) error {
	all, err := c.all(ifindex)
	if err != nil || len(all) > 0 {
		return err
	}
	return c.nl.QdiscDel(Point{Device: ifindex}.qdisc())
}

// RemoveFilters removes the clsact filters of these programs, or of all Fairlead programs
// if none is named, from all devices of the calling thread's network namespace. tcx links
// are removed with their pins.
func RemoveFilters(programs ...string) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	c := &clsact{nl: nl}
	defer c.Close()
	links, err := netlist.Whole(nl.LinkList)
	errs := []error{err}
	for _, l := range links {
		if err := c.clear(l.Attrs().Index, programs); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("filters of %s: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// clear removes our filters from a device.
func (c *clsact) clear(ifindex int, programs []string) error {
	filters, err := c.filters(ifindex)
	if err != nil {
		return err
	}
	found := false
	for _, f := range filters {
		if len(programs) > 0 && !slices.Contains(programs, programOf(f)) {
			continue
		}
		found = true
		if err := c.nl.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if !found {
		return nil
	}
	return c.tidy(ifindex)
}

func (p Point) qdisc() netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: p.Device, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		},
		QdiscType: "clsact",
	}
}

func (c *clsact) Points() []Point { return sorted(c.points) }

func (*clsact) Kind() string { return "clsact" }

func (c *clsact) Close() error {
	c.nl.Close()
	return nil
}
