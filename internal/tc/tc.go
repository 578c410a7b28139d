// Package tc attaches BPF programs to ingress and egress of network devices, with tcx links
// if the kernel supports them (6.6), else with clsact filters. Attached programs outlive
// the process, are found again by the next one, and are replaced atomically. The callers
// decide where programs are attached.
package tc

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
)

// Program is a program and the direction it is attached to.
type Program struct {
	*ebpf.Program
	Ingress bool
	// Handle distinguishes programs on the same side of a device, across all callers. It
	// must never change, because filters are found by it. Each caller has a range of ten;
	// programs in it from another release that this one does not know are removed.
	Handle uint32
}

// Programs are the programs of a caller, by name.
type Programs map[string]Program

// Point is a program on a device, by interface index.
type Point struct {
	Device  int
	Program string
}

// Hook attaches programs to devices in the calling thread's network namespace.
type Hook interface {
	// Keep attaches exactly these points. Points that stay are never detached in between.
	// Missing devices are not an error.
	Keep(wanted map[Point]bool) error
	// Points lists the attached points, sorted.
	Points() []Point
	// Kind is "tcx" or "clsact".
	Kind() string
	// Close releases the hook; programs stay attached.
	Close() error
}

// Opener creates a hook that has found the points left by a predecessor, with its links in
// dir, and has replaced the programs there.
type Opener func(dir *bpffs.Dir, progs Programs) (Hook, error)

// Open uses tcx links, or clsact filters if the kernel does not support tcx. Links of a
// predecessor are taken over in either case, so that no program is attached to a point
// twice.
func Open(dir *bpffs.Dir, progs Programs) (Hook, error) {
	pins, err := dir.Names(linkPrefix)
	if err != nil {
		return nil, err
	}
	if len(pins) > 0 || haveTCX(progs) {
		return openTCX(dir, progs)
	}
	return OpenClsact(dir, progs)
}

// All returns the programs, sorted by name.
func (progs Programs) All() (all []*ebpf.Program) {
	for _, name := range slices.Sorted(maps.Keys(progs)) {
		all = append(all, progs[name].Program)
	}
	return all
}

// TakeOver replaces a predecessor's programs and settles the state shared with it. After
// that, maps used only by the predecessor may be removed.
func (progs Programs) TakeOver(state *bpfload.State, dir *bpffs.Dir, open Opener) (Hook, error) {
	if err := state.Replace(progs.All()...); err != nil {
		return nil, err
	}
	hook, err := open(dir, progs)
	if err != nil {
		return nil, err
	}
	if err := state.Settle(); err != nil {
		return nil, errors.Join(err, hook.Close())
	}
	return hook, nil
}

// Attached returns the kernel IDs of the programs that a predecessor left attached, by
// links in dir or else by filters with these names. The programs need not be loaded.
func (progs Programs) Attached(dir *bpffs.Dir) ([]ebpf.ProgramID, error) {
	linked, err := bpfload.Attached(dir, linkPrefix)
	if err != nil || len(linked) > 0 {
		return linked, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	return (&clsact{nl: nl}).attached(progs)
}

// haveTCX probes for tcx by attaching to a nonexistent device, for each direction: a kernel
// that supports it returns ENODEV.
func haveTCX(progs Programs) bool {
	const noDevice = 1<<31 - 1
	for _, p := range progs {
		l, err := link.AttachTCX(link.TCXOptions{Interface: noDevice, Program: p.Program, Attach: p.side()})
		if err == nil {
			l.Close()
		}
		if !gone(err) {
			return false
		}
	}
	return len(progs) > 0
}

// side returns the tcx attach type of the program.
func (p Program) side() ebpf.AttachType {
	if p.Ingress {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

func sorted[T any](points map[Point]T) []Point {
	all := make([]Point, 0, len(points))
	for p := range points {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Program, b.Program))
	})
	return all
}

// DeviceName returns the name of a device, or its index if the device is gone.
func DeviceName(index int) string {
	if dev, err := net.InterfaceByIndex(index); err == nil {
		return dev.Name
	}
	return "device " + strconv.Itoa(index)
}

// gone reports whether err means that the device disappeared.
func gone(err error) bool { return errors.Is(err, unix.ENODEV) }
