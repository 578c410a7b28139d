package xdp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp/backendlist"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/dataplane/xdp/guard"
	"github.com/fairlead/fairlead/dataplane/xdp/layout2"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
	"github.com/fairlead/fairlead/dataplane/xdp/synflood"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
)

// ErrLayout is the error of Open, wrapped, if PinDir has maps that this version or this
// configuration cannot take over.
var ErrLayout = errors.New("pinned maps of another layout")

// pinPrefix starts the name of the pin directory. The layout's number follows.
const (
	pinPrefix = "balancer-v"
	ownFolder = pinPrefix + "3"
)

// openPins opens the pin directory and reports whether it is empty.
func (d *DataPlane) openPins() (fresh bool, err error) {
	if err := bpffs.Mount(d.config.PinDir); err != nil {
		return false, fmt.Errorf("xdp: PinDir: %w", err)
	}
	_, other, err := OlderLayouts(d.config.PinDir)
	if err != nil {
		return false, fmt.Errorf("xdp: PinDir: %w", err)
	}
	if len(other) > 0 {
		return false, fmt.Errorf("xdp: %w: %s, while this version writes %s: stop the other version's agent, "+
			"remove that folder (which stops its forwarding) and start again", ErrLayout, other[0], ownFolder)
	}
	d.pins, err = bpffs.Open(filepath.Join(d.config.PinDir, ownFolder))
	if errors.Is(err, bpffs.ErrInUse) {
		return false, fmt.Errorf("xdp: PinDir: %w: stop the other agent, or configure another PinDir", err)
	}
	if err != nil {
		return false, fmt.Errorf("xdp: PinDir: %w", err)
	}
	if err := d.stepAside(); err != nil {
		return false, errors.Join(err, d.pins.Close())
	}
	names, err := d.pins.Names("")
	if err != nil {
		return false, errors.Join(fmt.Errorf("xdp: PinDir: %w", err), d.pins.Close())
	}
	return len(names) == 0, nil
}

// OlderLayouts lists directories that other versions left in a PinDir: those that Open
// takes over, and those that it rejects (ErrLayout).
func OlderLayouts(pinDir string) (known, other []string, err error) {
	folders, err := os.ReadDir(pinDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	for _, f := range folders {
		switch path := filepath.Join(pinDir, f.Name()); {
		case f.Name() == layout2.Folder:
			known = append(known, path)
		case strings.HasPrefix(f.Name(), pinPrefix) && f.Name() != ownFolder && f.Name() != resizedFolder:
			other = append(other, path)
		}
	}
	return known, other, err
}

// load loads the programs onto the pinned maps, which it creates if they are missing.
func (d *DataPlane) load(old *predecessor) error {
	d.setProgram(map[string]any{bpf.BalancerVarBackByRedirect: device.AnyVeth(d.config.Interfaces), bpf.BalancerVarGuardKey: guard.Key()})
	spec, err := d.program.Spec()
	if err != nil {
		return err
	}
	if d.reasons, err = bpf.EnumNames(spec, "drop_reason", "DROP_", int(bpf.BalancerDropReasonDROP_REASONS)); err != nil {
		return err
	}
	if err := spec.Variables[bpf.BalancerVarSet].Get(&d.settings); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	folders := []*bpffs.Dir{d.pins}
	if old != nil {
		folders = append(folders, old.pins)
	}
	if err := d.program.Inherit(folders...); err != nil {
		return err
	}
	if d.program.HasSYN() {
		if err := synflood.Preset(spec, d.config.Interfaces); err != nil {
			return err
		}
	}
	if err := d.keepMirror(spec); err != nil {
		return err
	}
	if d.state, err = d.openState(spec, kept); err != nil {
		return err
	}
	if err := d.program.Load(spec, func(s *ebpf.CollectionSpec) error { return d.loadObjects(s, d.kernel) }); err != nil {
		return err
	}
	if err := d.bits.Open(d.kernel.VipBits); err != nil {
		return err
	}
	carried, err := d.carry()
	if err != nil {
		return err
	}
	if err := d.lists.Adopt(); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if len(carried) > 0 {
		slog.Info("taking over maps of another release", "maps", carried)
	}
	return d.program.PinSteps()
}

// keepMirror keeps map members as large as another release made it.
func (d *DataPlane) keepMirror(spec *ebpf.CollectionSpec) error {
	m := spec.Maps[bpf.BalancerMapMembers]
	n, err := bpfload.PinnedSize(d.pins.Path(m.Name))
	if err != nil {
		return fmt.Errorf("xdp: PinDir: %s: %w", m.Name, err)
	}
	m.MaxEntries = max(m.MaxEntries, n)
	return nil
}

func (d *DataPlane) setProgram(constants map[string]any) {
	d.program = program.New(d.config.program(), d.pins, constants)
	d.kernel = &d.program.Objects
}

// loadObjects loads all of d.kernel, or a part of it.
func (d *DataPlane) loadObjects(spec *ebpf.CollectionSpec, into any) error {
	inner := func(outer, name string) *ebpf.MapSpec {
		s := spec.Maps[outer].InnerMap.Copy()
		s.Name = name
		return s
	}
	segment, lists := inner(bpf.BalancerMapRings, "rings"), inner(bpf.BalancerMapMemberLists, "member_lists")
	trie := inner(bpf.BalancerMapGuardRanges, "guard_trie")
	err := d.program.Together(spec, into)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return fmt.Errorf("%w: %w: remove %s (which stops forwarding) and start again", ErrLayout, err, d.pins.Path(""))
	}
	if err != nil {
		return err
	}
	d.rings = ringmap.New(&d.kernel.BalancerMaps, segment, uint32(d.config.WideRings/8), d.grace)
	d.lists = backendlist.New(&d.kernel.BalancerMaps, lists, d.config.MaxMembers)
	d.guard = guard.New(&d.kernel.BalancerMaps, trie)
	return d.flows.Open(spec, &d.kernel.BalancerMaps)
}

// program returns the options of the program.
func (c Config) program() program.Options {
	return program.Options{
		MaxFrontends: c.MaxFrontends, MaxBackends: c.MaxBackends, MaxMembers: c.MaxMembers, MaxChains: c.MaxChains, MaxFlows: c.MaxFlows,
		SourceV4: c.SourceV4, SourceV6: c.SourceV6, FirstPort: c.Ports.First, LastPort: c.Ports.Last, GUEPort: c.GUEPort,
		Auth: c.Auth, Kept: kept,
	}
}

// Prepare makes the data plane accept packets that others hand to it. Until then they go
// to the kernel.
func (d *DataPlane) Prepare() error { return d.program.LoadHandover() }

// Programs is that of program.Program, for benchmarks and fuzzing.
func (d *DataPlane) Programs() (spec *ebpf.CollectionSpec, pins string, err error) {
	return d.program.Programs()
}

// Settings returns the maps of variables that change, by their names, for the same.
func (d *DataPlane) Settings() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{program.SettingsSection: d.program.Settings, program.RoutesSection: d.program.Routes}
}

// Chained is that of program.Program.
func (d *DataPlane) Chained() (spec *ebpf.CollectionSpec, pins string, err error) {
	return d.program.Chained()
}

// ProgramsOf is that of program.Program.
func (d *DataPlane) ProgramsOf(object io.ReaderAt) (spec *ebpf.CollectionSpec, pins string, err error) {
	return d.program.ProgramsOf(object)
}

// Impossible reports whether an error of Open means that this kernel, or the process's
// permissions, do not allow the program to run. All other errors can be fixed.
func Impossible(err error) bool {
	var verifier *ebpf.VerifierError
	for _, cannot := range []error{ebpf.ErrNotSupported, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM} {
		if errors.Is(err, cannot) {
			return true
		}
	}
	return errors.As(err, &verifier)
}
