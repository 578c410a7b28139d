package proxy

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/ownns"
)

// pinPrefix starts the name of the pin directory. The layout's number follows.
const pinPrefix = "proxy-v"

// ErrLayout is the error of Open, wrapped, if PinDir has maps that this version or this
// configuration cannot take over.
var ErrLayout = errors.New("pinned maps of another layout")

// Folder returns where the maps are pinned below a PinDir, for loading other programs
// with them.
func Folder(pinDir string) string {
	return filepath.Join(pinDir, fmt.Sprint(pinPrefix, uint32(proxyProxyLayoutPROXY_LAYOUT)))
}

func openPins(pinDir string) (*bpffs.Dir, error) {
	if err := bpffs.Mount(pinDir); err != nil {
		return nil, fmt.Errorf("PinDir: %w", err)
	}
	own := Folder(pinDir)
	folders, err := os.ReadDir(pinDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("PinDir: %w", err)
	}
	for _, f := range folders {
		if strings.HasPrefix(f.Name(), pinPrefix) && f.Name() != filepath.Base(own) {
			return nil, fmt.Errorf("%w: %s, while this version writes %s: stop the other version's agent, "+
				"remove that folder (which ends its service) and start again",
				ErrLayout, filepath.Join(pinDir, f.Name()), filepath.Base(own))
		}
	}
	pins, err := bpffs.Open(own)
	if err != nil {
		return nil, fmt.Errorf("PinDir: %w", err)
	}
	return pins, nil
}

// kept are the maps that outlive the agent. Per-socket state (origins) cannot be copied:
// another version of it starts empty.
var kept = bpfload.KeptMaps{
	proxyMapServices: {Seal: sealService}, proxyMapTargets: {}, proxyMapSourceRanges: {}, proxyMapNodeAddresses: {},
	proxyMapConnections: {Written: true}, proxyMapAffinities: {Written: true}, proxyMapSent: {Written: true}, proxyMapSenders: {Written: true},
	proxyMapOrigins: {},
}

// history contains the layouts that releases pin, as in bpfload.Source.
//
//go:embed layouts.json
var history []byte

// Pin returns the name under which a map is pinned, for loading other programs with it.
func Pin(name string) string { return kept.Pin(name) }

// load loads the programs with the pinned maps, which it creates if they are missing.
func (d *DataPlane) load() error {
	spec, err := loadProxy()
	if err != nil {
		return err
	}
	for name, n := range map[string]uint32{
		proxyMapServices:     d.config.MaxFrontends,
		proxyMapConnections:  d.config.MaxFrontends,
		proxyMapTargets:      d.config.MaxTargets,
		proxyMapSourceRanges: d.config.MaxSourceRanges,
		proxyMapAffinities:   d.config.MaxAffinities,
		proxyMapSent:         d.config.MaxSenders,
		proxyMapSenders:      d.config.MaxSenders,
	} {
		spec.Maps[name].MaxEntries = n
	}
	attached, err := bpfload.Attached(d.pins, linkPrefix)
	if err != nil {
		return err
	}
	d.state, err = bpfload.OpenState(spec, bpfload.Source{Folder: d.pins.Path(""), Maps: kept, History: history, Attached: attached})
	if err != nil {
		return err
	}
	cookie, err := ownns.Cookie()
	if err != nil {
		return err
	}
	if err := errors.Join(
		spec.Variables[proxyVarNodeNetns].Set(cookie),
		spec.Variables[proxyVarNodeOnly].Set(d.config.NodeOnly),
	); err != nil {
		return err
	}
	misfit := fmt.Errorf("%w: configure the sizes of the pinned maps, or remove %s (which interrupts service) and start again", ErrLayout, d.pins.Path(""))
	var preset features.Missing
	if d.config.withoutIterator {
		preset = features.Missing{features.NewDegraded(features.SocketIterator, features.SocketProxy, unix.EPERM)}
		preset.Strip(spec)
	}
	d.missing, err = bpfload.Load(features.SocketProxy, spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: d.pins.Path("")}}, &d.kernel, misfit)
	d.missing = append(d.missing, preset...)
	d.missing.Check(features.SocketProxy, features.SocketDestroy) // now, not when the first socket must be ended
	return err
}

// waiter waits for running programs.
type waiter struct{ outer, inner *ebpf.Map }

func newWaiter() (*waiter, error) {
	spec := &ebpf.MapSpec{Name: "waiter", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, features.Refused(features.SocketProxy, "make a map", err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "waiter", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec})
	if err != nil {
		return nil, errors.Join(features.Refused(features.SocketProxy, "make a map of maps", err), inner.Close())
	}
	return &waiter{outer, inner}, nil
}

// wait returns when every program that is running now has ended: the kernel does not
// return from changing a map of maps before (kernel/bpf/syscall.c,
// maybe_wait_bpf_programs). membarrier(2) would work, but not on every kernel
// (nohz_full).
func (w *waiter) wait() error {
	if err := w.outer.Put(uint32(0), w.inner); err != nil {
		return fmt.Errorf("wait for running programs: %w", err)
	}
	return nil
}

func (w *waiter) close() error { return errors.Join(w.outer.Close(), w.inner.Close()) }
