package serverhalf

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/bpffs"
)

// point is one program at one side of one device.
type point struct {
	ifindex int
	prog    string
	ingress bool
}

// hook holds programs at devices, in the calling thread's network namespace.
type hook interface {
	// keep makes exactly these points hold the programs. What a point that
	// stays holds is never absent meanwhile. Devices that vanish are no error.
	keep(wanted map[point]bool) error
	// describe gives one line a device.
	describe() []string
	// close lets go; what is attached stays.
	close() error
}

// newHookFunc makes a hook that has found the points which a predecessor left
// and has put these programs in the place of its.
type newHookFunc func(dir *bpffs.Dir, progs serverPrograms) (hook, error)

// newHook uses tcx links, which came with Linux 6.6, or else clsact filters.
func newHook(dir *bpffs.Dir, progs serverPrograms) (hook, error) {
	if haveTCX(progs) {
		return newTCX(dir, progs)
	}
	return newClsact(dir, progs)
}

// haveTCX asks for a device that cannot be there: a kernel that has tcx says so.
func haveTCX(progs serverPrograms) bool {
	const noDevice = 1<<31 - 1
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: noDevice, Program: progs.ToServer, Attach: ebpf.AttachTCXIngress,
	})
	if err == nil {
		l.Close()
	}
	return !errors.Is(err, ebpf.ErrNotSupported)
}

func (p serverPrograms) named(name string) *ebpf.Program {
	return map[string]*ebpf.Program{
		serverProgToServer: p.ToServer, serverProgFromServer: p.FromServer,
		serverProgToHost: p.ToHost, serverProgFromHost: p.FromHost, serverProgFromNode: p.FromNode,
	}[name]
}

// tcx holds links, each pinned under a name that says its point.
type tcx struct {
	dir   *bpffs.Dir
	progs serverPrograms
	links map[point]link.Link
}

const linkPrefix = "link_"

func (p point) pin() string { return linkPrefix + p.prog + "_" + strconv.Itoa(p.ifindex) }

// pinPoint reads a pin's name.
func pinPoint(pin string) (point, bool) {
	name := strings.TrimPrefix(pin, linkPrefix)
	i := strings.LastIndexByte(name, '_')
	if i < 0 {
		return point{}, false
	}
	ifindex, err := strconv.Atoi(name[i+1:])
	p := point{ifindex: ifindex, prog: name[:i]}
	p.ingress = p.prog == serverProgFromServer || p.prog == serverProgToHost
	return p, err == nil && serverPrograms{}.has(p.prog)
}

func (serverPrograms) has(name string) bool {
	return slices.Contains([]string{serverProgToServer, serverProgFromServer, serverProgToHost, serverProgFromHost, serverProgFromNode}, name)
}

func newTCX(dir *bpffs.Dir, progs serverPrograms) (hook, error) {
	t := &tcx{dir: dir, progs: progs, links: map[point]link.Link{}}
	pins, err := dir.Names(linkPrefix)
	if err != nil {
		return nil, err
	}
	for _, pin := range pins {
		if err := t.adopt(pin); err != nil {
			t.close()
			return nil, fmt.Errorf("pinned link %s: %w", pin, err)
		}
	}
	return t, nil
}

// adopt takes over a predecessor's link, or takes its pin away where the device
// is gone.
func (t *tcx) adopt(pin string) error {
	p, ok := pinPoint(pin)
	if !ok {
		return t.dir.Remove(pin)
	}
	l, err := link.LoadPinnedLink(t.dir.Path(pin), nil)
	if err != nil {
		return err
	}
	if !attached(l, p) {
		return errors.Join(l.Close(), t.dir.Remove(pin))
	}
	if err := l.Update(t.progs.named(p.prog)); err != nil {
		l.Close()
		return err
	}
	t.links[p] = l
	return nil
}

// attached tells whether a link is still at its device: the kernel takes it
// off when the device goes, and a device's index can come again.
func attached(l link.Link, p point) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	at := info.TCX()
	return at != nil && int(at.Ifindex) == p.ifindex
}

func (t *tcx) keep(wanted map[point]bool) error {
	var errs []error
	for p, l := range t.links {
		if !wanted[p] || !attached(l, p) {
			errs = append(errs, t.detach(p))
		}
	}
	for p := range wanted {
		if t.links[p] == nil {
			errs = append(errs, t.attach(p))
		}
	}
	return errors.Join(errs...)
}

func (t *tcx) attach(p point) error {
	attach := ebpf.AttachTCXEgress
	if p.ingress {
		attach = ebpf.AttachTCXIngress
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: p.ifindex, Program: t.progs.named(p.prog), Attach: attach,
	})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", p.prog, deviceName(p.ifindex), err)
	}
	if err := l.Pin(t.dir.Path(p.pin())); err != nil {
		return errors.Join(fmt.Errorf("pin %s: %w", p.pin(), err), l.Close())
	}
	t.links[p] = l
	return nil
}

func (t *tcx) detach(p point) error {
	l := t.links[p]
	delete(t.links, p)
	// The kernel's own detaching first: another process may hold the link.
	err := l.Detach()
	if errors.Is(err, unix.ENOLINK) {
		err = nil // the device is gone
	}
	return errors.Join(err, t.dir.Remove(p.pin()), l.Close())
}

func (t *tcx) describe() []string {
	points := map[point]bool{}
	for p := range t.links {
		points[p] = true
	}
	return describePoints(points, "tcx")
}

func (t *tcx) close() error {
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// describePoints gives "veth1: tcx: servers behind it".
func describePoints(points map[point]bool, how string) []string {
	serves := map[string]string{
		serverProgToServer: "servers behind it", serverProgToHost: "packets that come in",
	}
	var lines []string
	for p := range points {
		if what, ok := serves[p.prog]; ok {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", deviceName(p.ifindex), how, what))
		}
	}
	slices.Sort(lines)
	return lines
}

func deviceName(ifindex int) string {
	if dev, err := net.InterfaceByIndex(ifindex); err == nil {
		return dev.Name
	}
	return fmt.Sprintf("device %d", ifindex)
}

// gone tells that a device vanished while it was worked on.
func gone(err error) bool { return errors.Is(err, unix.ENODEV) }
