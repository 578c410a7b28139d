package tc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/bpffs"
)

// tcx holds links, each pinned under a name derived from its point.
type tcx struct {
	dir   *bpffs.Dir
	progs Programs
	links map[Point]link.Link
}

const linkPrefix = "link_"

// Pin returns the pin name of the point's link.
func (p Point) Pin() string { return linkPrefix + p.Program + "_" + strconv.Itoa(p.Device) }

// point parses a pin name.
func (progs Programs) point(pin string) (Point, bool) {
	name := strings.TrimPrefix(pin, linkPrefix)
	i := strings.LastIndexByte(name, '_')
	if i < 0 {
		return Point{}, false
	}
	device, err := strconv.Atoi(name[i+1:])
	_, known := progs[name[:i]]
	return Point{Device: device, Program: name[:i]}, err == nil && known
}

func openTCX(dir *bpffs.Dir, progs Programs) (Hook, error) {
	t := &tcx{dir: dir, progs: progs, links: map[Point]link.Link{}}
	pins, err := dir.Names(linkPrefix)
	if err != nil {
		return nil, err
	}
	for _, pin := range pins {
		if err := t.adopt(pin); err != nil {
			t.Close()
			return nil, fmt.Errorf("pinned link %s: %w", pin, err)
		}
	}
	return t, nil
}

// adopt takes over a predecessor's link, or removes its pin if the device is gone.
func (t *tcx) adopt(pin string) error {
	p, ok := t.progs.point(pin)
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
	if err := l.Update(t.progs[p.Program].Program); err != nil {
		l.Close()
		return err
	}
	t.links[p] = l
	return nil
}

// attached reports whether a link is still attached to its device. The kernel detaches it
// when the device goes, and interface indexes can be reused.
func attached(l link.Link, p Point) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	at := info.TCX()
	return at != nil && int(at.Ifindex) == p.Device
}

func (t *tcx) Keep(wanted map[Point]bool) error {
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

func (t *tcx) attach(p Point) error {
	program := t.progs[p.Program]
	l, err := link.AttachTCX(link.TCXOptions{Interface: p.Device, Program: program.Program, Attach: program.side()})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", p.Program, DeviceName(p.Device), err)
	}
	if err := l.Pin(t.dir.Path(p.Pin())); err != nil {
		return errors.Join(fmt.Errorf("pin %s: %w", p.Pin(), err), l.Close())
	}
	t.links[p] = l
	return nil
}

func (t *tcx) detach(p Point) error {
	l := t.links[p]
	delete(t.links, p)
	// Detach explicitly first: another process may hold the link.
	err := l.Detach()
	if errors.Is(err, unix.ENOLINK) {
		err = nil // the device is gone
	}
	return errors.Join(err, t.dir.Remove(p.Pin()), l.Close())
}

func (t *tcx) Points() []Point { return sorted(t.links) }

func (*tcx) Kind() string { return "tcx" }

func (t *tcx) Close() error {
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// RemoveLinks detaches all links pinned in a directory, in any network namespace.
func RemoveLinks(dir *bpffs.Dir) error {
	pins, err := dir.Names(linkPrefix)
	errs := []error{err}
	for _, pin := range pins {
		errs = append(errs, EndLink(dir.Path(pin)))
	}
	return errors.Join(errs...)
}

// EndLink detaches and unpins a link of any kind, even if other processes have it open.
func EndLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	err = l.Detach()
	if errors.Is(err, unix.ENOLINK) || errors.Is(err, ebpf.ErrNotSupported) {
		err = nil // the device is gone, or the link ends with its pin
	}
	if err = errors.Join(err, l.Unpin(), l.Close()); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}
