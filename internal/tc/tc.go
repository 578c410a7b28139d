// Package tc holds BPF programs at the two sides of network devices: by tcx links
// where the kernel has those (6.6), else by clsact filters. What is attached
// outlives the process, is found again by the next one, and is replaced in one
// step. Which programs belong where is its callers' business.
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

// Program is a program with its side of devices: where packets come in, or
// where they leave.
type Program struct {
	*ebpf.Program
	Ingress bool
	// Handle tells it from others, of whatever caller, that share a side of a
	// device; the same for ever, as filters are found by it. A caller has a range of
	// ten: what another release has left there and this one does not know is removed.
	Handle uint32
}

// Programs are a caller's, by name.
type Programs map[string]Program

// Point is one program at one device, by the device's index.
type Point struct {
	Device  int
	Program string
}

// Hook holds programs at devices, in the calling thread's network namespace.
type Hook interface {
	// Keep makes exactly these points hold the programs. What a point that
	// stays holds is never absent meanwhile. Devices that vanish are no error.
	Keep(wanted map[Point]bool) error
	// Points lists what is held, sorted.
	Points() []Point
	// Kind is "tcx" or "clsact".
	Kind() string
	// Close lets go; what is attached stays.
	Close() error
}

// Opener makes a hook that has found the points which a predecessor left, with
// its links in dir, and has put these programs in the place of its.
type Opener func(dir *bpffs.Dir, progs Programs) (Hook, error)

// Open uses tcx links, or clsact filters where the kernel refuses those. Links
// that a predecessor left are taken over in either case: a program is never at a
// point twice.
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

// All returns the programs, sorted by their names.
func (progs Programs) All() (all []*ebpf.Program) {
	for _, name := range slices.Sorted(maps.Keys(progs)) {
		all = append(all, progs[name].Program)
	}
	return all
}

// TakeOver puts the programs in the place of a predecessor's, and settles the state that
// they share with it: from then on the maps that only the predecessor used may go.
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

// Attached returns the kernel's numbers of the programs that a predecessor left
// attached: by links in dir, or else by filters of these names. The programs need not
// be loaded.
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

// haveTCX attaches to a device that cannot be there, on each side that programs
// are for: a kernel that has tcx, and does not refuse it, says so.
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

// side is where tcx attaches the program.
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

// DeviceName gives a device's name, or its number where it is gone.
func DeviceName(index int) string {
	if dev, err := net.InterfaceByIndex(index); err == nil {
		return dev.Name
	}
	return "device " + strconv.Itoa(index)
}

// gone tells that a device vanished while it was worked on.
func gone(err error) bool { return errors.Is(err, unix.ENODEV) }
