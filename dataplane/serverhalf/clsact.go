package serverhalf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/bpffs"
)

// clsact holds filters, where the kernel has no tcx. A filter outlives its
// process by itself and is found again by its name.
type clsact struct {
	nl     *netlink.Handle
	progs  serverPrograms
	points map[point]bool
}

// The filters' place among others': arbitrary numbers, the same for ever, as
// they are how filters are found and replaced.
const (
	filterPriority = 0xfa1e
	filterPrefix   = "fairlead_"
)

// filterHandles tell apart the programs that may share one side of a device.
var filterHandles = map[string]uint32{
	serverProgToServer: 1, serverProgFromServer: 2, serverProgToHost: 3, serverProgFromHost: 4,
	serverProgFromNode: 5,
}

func newClsact(_ *bpffs.Dir, progs serverPrograms) (hook, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	c := &clsact{nl: nl, progs: progs, points: map[point]bool{}}
	links, err := nl.LinkList()
	if err != nil {
		c.close()
		return nil, err
	}
	for _, l := range links {
		if err := c.adopt(l.Attrs().Index); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// adopt finds a predecessor's filters at a device and puts our programs into them.
func (c *clsact) adopt(ifindex int) error {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := c.filters(ifindex, parent)
		if err != nil {
			return err
		}
		for _, f := range filters {
			prog := strings.TrimPrefix(f.Name, filterPrefix)
			p := point{ifindex: ifindex, prog: prog, ingress: parent == netlink.HANDLE_MIN_INGRESS}
			if !c.progs.has(p.prog) {
				continue
			}
			if err := c.attach(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// filters lists our own filters at one side of a device.
func (c *clsact) filters(ifindex int, parent uint32) ([]*netlink.BpfFilter, error) {
	all, err := c.all(ifindex, parent)
	var ours []*netlink.BpfFilter
	for _, f := range all {
		bpf, ok := f.(*netlink.BpfFilter)
		if ok && bpf.Priority == filterPriority && strings.HasPrefix(bpf.Name, filterPrefix) {
			ours = append(ours, bpf)
		}
	}
	return ours, err
}

// all lists everyone's filters; a device with no clsact has none.
func (c *clsact) all(ifindex int, parent uint32) ([]netlink.Filter, error) {
	dev := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
	all, err := c.nl.FilterList(dev, parent)
	if gone(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return all, err
}

func (c *clsact) keep(wanted map[point]bool) error {
	var errs []error
	for p := range c.points {
		if !wanted[p] {
			errs = append(errs, c.detach(p))
		}
	}
	for p := range wanted {
		// Also those that are there: someone may have taken the qdisc away.
		errs = append(errs, c.attach(p))
	}
	return errors.Join(errs...)
}

func (c *clsact) attach(p point) error {
	err := c.nl.QdiscAdd(p.qdisc())
	if err == nil || errors.Is(err, unix.EEXIST) {
		err = c.nl.FilterReplace(c.filter(p))
	}
	if gone(err) {
		delete(c.points, p)
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", p.prog, deviceName(p.ifindex), err)
	}
	c.points[p] = true
	return nil
}

func (c *clsact) filter(p point) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: p.ifindex, Parent: p.parent(), Handle: filterHandles[p.prog],
			Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: c.progs.named(p.prog).FD(), Name: filterPrefix + p.prog, DirectAction: true,
	}
}

func (p point) parent() uint32 {
	if p.ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// detach takes a filter away, and the qdisc where nobody has a filter left.
func (c *clsact) detach(p point) error {
	delete(c.points, p)
	err := c.nl.FilterDel(c.filter(p))
	if gone(err) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach %s from %s: %w", p.prog, deviceName(p.ifindex), err)
	}
	in, err := c.all(p.ifindex, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return err
	}
	out, err := c.all(p.ifindex, netlink.HANDLE_MIN_EGRESS)
	if err != nil || len(in)+len(out) > 0 {
		return err
	}
	return c.nl.QdiscDel(p.qdisc())
}

func (p point) qdisc() netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: p.ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		},
		QdiscType: "clsact",
	}
}

func (c *clsact) describe() []string { return describePoints(c.points, "clsact") }

func (c *clsact) close() error {
	c.nl.Close()
	return nil
}
