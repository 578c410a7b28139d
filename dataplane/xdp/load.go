package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/device"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/guard"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/features"
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
		case f.Name() == layoutTwo:
			known = append(known, path)
		case strings.HasPrefix(f.Name(), pinPrefix) && f.Name() != ownFolder && f.Name() != resizedFolder:
			other = append(other, path)
		}
	}
	return known, other, err
}

// spec returns the program and its maps as configured.
func (c Config) spec() (*ebpf.CollectionSpec, error) { return c.specOf(bpf.LoadBalancer) }

// specOf does so for an object compiled from bpf/balancer.c.
func (c Config) specOf(load func() (*ebpf.CollectionSpec, error)) (*ebpf.CollectionSpec, error) {
	spec, err := load()
	if err != nil {
		return nil, err
	}
	for name, n := range map[string]int{
		bpf.BalancerMapFrontends:      2 * c.MaxFrontends, // each may have its own VIP
		bpf.BalancerMapFrontendCounts: c.MaxFrontends,
		bpf.BalancerMapPortRanges:     4 * c.MaxFrontends, // a VIP's are contiguous, and are written next to the old ones
		bpf.BalancerMapChains:         c.MaxChains + 1,    // 0 is none
		bpf.BalancerMapServers:        c.MaxBackends + 1,  // 0 is none
		bpf.BalancerMapServerCpu:      c.MaxBackends + 1,
		bpf.BalancerMapMembers:        c.MaxMembers,
		bpf.BalancerMapGuardRanges:    c.MaxFrontends,
		bpf.BalancerMapGuardLimits:    c.MaxFrontends,
		bpf.BalancerMapGuardBuckets:   c.MaxFrontends,
		bpf.BalancerMapGuardCredit:    c.MaxFrontends,
		bpf.BalancerMapSynCounts:      c.MaxFrontends,
	} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	if err := c.sizeFlows(spec); err != nil {
		return nil, err
	}
	if err := auth.Preset(spec, c.Auth); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	for name := range kept {
		spec.Maps[name].Pinning, spec.Maps[name].Name = ebpf.PinByName, kept.Pin(name)
	}
	return spec, c.presetSettings(spec)
}

// presetSettings sets the settings in the object, so that no packet is processed with
// others.
func (c Config) presetSettings(spec *ebpf.CollectionSpec) error {
	variable := spec.Variables[bpf.BalancerVarSet]
	var set bpf.BalancerSettings
	if err := variable.Get(&set); err != nil {
		return fmt.Errorf("xdp: settings: %w", err)
	}
	set.Own4.Word, set.Own6.Word = entry.ToAddr(c.SourceV4).Word, entry.ToAddr(c.SourceV6).Word
	set.GuePort = c.GUEPort
	set.PortFirst, set.PortCount = c.Ports.First, c.Ports.Last-c.Ports.First+1
	if err := variable.Set(set); err != nil {
		return fmt.Errorf("xdp: settings: %w", err)
	}
	return nil
}

// spec returns the programs and maps without those that the kernel does not support.
func (d *DataPlane) spec() (*ebpf.CollectionSpec, error) { return d.specOf(bpf.LoadBalancer) }

func (d *DataPlane) specOf(load func() (*ebpf.CollectionSpec, error)) (*ebpf.CollectionSpec, error) {
	spec, err := d.config.specOf(load)
	if err == nil {
		d.missing.Strip(spec)
	}
	return spec, err
}

// kernelObjects are the attached program, the generated maps, and the map of the
// settings. The table of steps refers to the other programs.
type kernelObjects struct {
	Balancer *ebpf.Program `ebpf:"balancer"`
	bpf.BalancerMaps
	bpf.BalancerVariables
	Settings *ebpf.Map `ebpf:".data.settings"`
	AuthData *ebpf.Map `ebpf:".data.auth"`
}

// Close closes all.
func (k *kernelObjects) Close() error {
	return errors.Join(k.Balancer.Close(), k.BalancerMaps.Close(), k.Settings.Close(), k.AuthData.Close())
}

// settingsSection is that map's name.
const settingsSection = ".data.settings"

// load loads the programs onto the pinned maps, which it creates if they are missing.
func (d *DataPlane) load(old *predecessor) error {
	spec, err := d.config.spec()
	if err != nil {
		return err
	}
	if d.reasons, err = bpf.EnumNames(spec, "drop_reason", "DROP_", int(bpf.BalancerDropReasonDROP_REASONS)); err != nil {
		return err
	}
	if err := spec.Variables[bpf.BalancerVarSet].Get(&d.settings); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	d.constants = map[string]any{
		bpf.BalancerVarBackByRedirect: d.config.anyVeth(), bpf.BalancerVarGuardKey: guard.Key(),
	}
	if err := d.setConstants(spec); err != nil {
		return err
	}
	if err := d.inheritLate(old); err != nil {
		return err
	}
	if err := d.presetSYN(spec); err != nil {
		return err
	}
	d.stripLate(spec)
	if d.state, err = d.openState(spec, kept); err != nil {
		return err
	}
	fillSteps(spec)
	trie := spec.Maps[bpf.BalancerMapGuardRanges].InnerMap.Copy()
	trie.Name = "guard_trie"
	d.guard = guard.New(&d.kernel.BalancerMaps, trie)
	d.missing, err = features.Load(features.Balancer, spec, func(s *ebpf.CollectionSpec) error { return d.loadObjects(s, &d.kernel) })
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if err := features.Require(features.Balancer, features.MapBatches); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	d.missing.Check(features.Balancer, features.TestRun) // now, not when a user starts a trace
	if err := d.bits.open(d.kernel.VipBits); err != nil {
		return err
	}
	carried, err := d.carry()
	if err != nil {
		return err
	}
	if len(carried) > 0 {
		slog.Info("taking over maps of another release", "maps", carried)
	}
	return d.pinSteps()
}

// loadObjects loads all of d.kernel, or a part of it.
func (d *DataPlane) loadObjects(spec *ebpf.CollectionSpec, into any) error {
	segment := spec.Maps[bpf.BalancerMapRings].InnerMap.Copy()
	segment.Name = "rings"
	err := loadTogether(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: d.pins.Path("")}}, into)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return fmt.Errorf("%w: %w: remove %s (which stops forwarding) and start again", ErrLayout, err, d.pins.Path(""))
	}
	if err != nil {
		return err
	}
	d.rings = ringmap.New(&d.kernel.BalancerMaps, segment, d.grace)
	return d.openFlows(spec)
}

// setConstants sets the constants of a program before loading.
func (d *DataPlane) setConstants(spec *ebpf.CollectionSpec) error {
	for name, value := range d.constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("xdp: constant %s: %w", name, err)
		}
	}
	return nil
}

// stepPrograms are the programs that can continue a packet, by number.
var stepPrograms = map[bpf.BalancerStep]string{
	bpf.BalancerStepSTEP_SLOW_PATH: "slow_path", bpf.BalancerStepSTEP_HANDOVER: "handover", bpf.BalancerStepSTEP_SYN: "syn",
}

// fillSteps lets the loader fill the table of steps.
func fillSteps(spec *ebpf.CollectionSpec) {
	for step, name := range stepPrograms {
		if spec.Programs[name] != nil {
			m := spec.Maps[bpf.BalancerMapSteps]
			m.Contents = append(m.Contents, ebpf.MapKV{Key: uint32(step), Value: name})
		}
	}
}

// stepsPrefix starts the names of the pinned tables of steps, one per attached program:
// the kernel empties a table that only programs reference (kernel/bpf/syscall.c,
// bpf_map_put_uref).
const stepsPrefix = "steps_"

func (d *DataPlane) pinSteps() (err error) {
	d.steps, err = d.pinTable(d.kernel.Steps)
	return err
}

// pinTable pins a table of steps and returns the pin's name.
func (d *DataPlane) pinTable(steps *ebpf.Map) (string, error) {
	info, err := steps.Info()
	if err != nil {
		return "", fmt.Errorf("xdp: steps: %w", err)
	}
	id, _ := info.ID()
	name := fmt.Sprint(stepsPrefix, id)
	if err := steps.Pin(d.pins.Path(name)); err != nil {
		return "", fmt.Errorf("xdp: pin steps: %w", err)
	}
	return name, nil
}

// unpinOldSteps unpins the tables of programs that are no longer attached.
func (d *DataPlane) unpinOldSteps() error {
	names, err := d.pins.Names(stepsPrefix)
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	for _, name := range names {
		if name == d.steps {
			continue
		}
		if err := d.pins.Remove(name); err != nil {
			return fmt.Errorf("xdp: steps of an earlier program: %w", err)
		}
	}
	return nil
}

// anyVeth reports whether an interface is one end of a veth pair, or consists of one.
func (c Config) anyVeth() bool {
	return slices.ContainsFunc(c.Interfaces, func(name string) bool {
		nic, err := netlink.LinkByName(name)
		return err == nil && device.UsesVeth(nic)
	})
}
