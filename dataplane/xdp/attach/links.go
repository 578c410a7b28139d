// Package attach attaches a program to interfaces: native or generic, replacing a predecessor's
// without loss, pinned so that it stays when the process ends. It knows nothing of the program
// but the map of ports for redirects. Its tests, with the program, are in dataplane/xdp.
package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/features"
)

// ErrOccupied is the error of Open, wrapped, if an interface has another XDP program.
var ErrOccupied = errors.New("interface has another XDP program")

// Prefix starts the names of pinned links.
const Prefix = "link_"

// Pin returns the name of an interface's pinned link.
func Pin(name string) string { return Prefix + device.PinWord(name) }

// Mode is how a program is attached to an interface.
type Mode string

// The modes.
const (
	Auto    Mode = "auto"    // native if supported, else generic
	Native  Mode = "native"  // in the driver
	Generic Mode = "generic" // in the kernel's receive path: works everywhere, slower
)

// Options are what to attach, and where.
type Options struct {
	Program    *ebpf.Program
	TxPorts    *ebpf.Map // the interfaces by which packets may leave
	Pins       *bpffs.Dir
	Interfaces []string
	Mode       Mode
}

// Links are the attachments of a program. Attach makes them.
type Links struct {
	Options
	links   map[string]link.Link // by interface
	lines   []string             // for Describe
	generic []features.Degraded  // interfaces without native XDP
	taken   []string             // interfaces whose program was replaced
}

// New returns links to make.
func New(o Options) *Links { return &Links{Options: o, links: map[string]link.Link{}} }

// Attach attaches the program to every interface, replacing a predecessor's if there is
// one, and detaches it from all others. Links of another layout, in a separate directory,
// become ours.
func (ls *Links) Attach(older *bpffs.Dir) error {
	if err := ls.openTxPorts(); err != nil {
		return err
	}
	if err := ls.adoptLinks(older); err != nil {
		return err
	}
	if err := ls.detachOthers(); err != nil {
		return err
	}
	var lines []string
	for _, name := range ls.Interfaces {
		line, err := ls.attachOne(name)
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	if err := ls.closeTxPorts(); err != nil {
		return err
	}
	ls.lines = lines
	return nil
}

// Describe returns a line for each interface: how the program is attached there, and why.
func (ls *Links) Describe() []string { return slices.Clone(ls.lines) }

// Degraded lists the interfaces that have generic XDP although native was wanted.
func (ls *Links) Degraded() []features.Degraded { return ls.generic }

// Replaced lists the interfaces on which Attach replaced the program of a predecessor.
func (ls *Links) Replaced() []string { return slices.Clone(ls.taken) }

// Swap replaces the attached program.
func (ls *Links) Swap(p *ebpf.Program) error {
	var errs []error
	for name, one := range ls.links {
		if err := one.Update(p); err != nil {
			errs = append(errs, fmt.Errorf("interface %s: replace the program: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Attached returns the program attached to an interface.
func (ls *Links) Attached(name string) (ebpf.ProgramID, error) {
	info, err := ls.links[name].Info()
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return info.Program, nil
}

// Names returns the interfaces by index.
func (ls *Links) Names() map[int]string {
	names := map[int]string{}
	for name, one := range ls.links {
		if info, err := one.Info(); err == nil && info.XDP() != nil {
			names[int(info.XDP().Ifindex)] = name
		}
	}
	return names
}

// Index returns the index of one of the interfaces; 0 for an empty name.
func (ls *Links) Index(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	for index, n := range ls.Names() {
		if n == name {
			return index, nil
		}
	}
	return 0, fmt.Errorf("interface %q: the data plane uses only %s", name, strings.Join(ls.Interfaces, ", "))
}

// Close closes the links. The program stays attached.
func (ls *Links) Close() error {
	var errs []error
	for _, one := range ls.links {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Detach detaches the program from all interfaces.
func (ls *Links) Detach() error {
	var errs []error
	for name, one := range ls.links {
		errs = append(errs, endLink(one), device.RestoreOffloads(ls.Pins, name))
	}
	return errors.Join(errs...)
}

// endLink removes a pinned link immediately and permanently.
func endLink(l link.Link) error {
	detached := l.Detach()
	if errors.Is(detached, unix.ENOLINK) {
		detached = nil // its interface no longer exists
	}
	return errors.Join(detached, l.Unpin(), l.Close())
}
