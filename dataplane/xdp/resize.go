package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
)

// stepAside renames the pin directory if its maps do not have the configured sizes, so
// that they can be replaced. It removes a directory that an interrupted attempt left and
// that forwards nothing.
func (d *DataPlane) stepAside() error {
	own, aside := filepath.Join(d.config.PinDir, ownFolder), filepath.Join(d.config.PinDir, resizedFolder)
	fits, err := d.sizesFit()
	if err != nil || fits {
		return err
	}
	if _, err := os.Stat(aside); err == nil {
		links, err := d.pins.Names(attach.Prefix)
		if err != nil {
			return fmt.Errorf("xdp: PinDir: %w", err)
		}
		if len(links) > 0 {
			return fmt.Errorf("xdp: %w: %s is being replaced already, by other sizes: "+
				"start once with MaxFrontends and the like as they were then", ErrLayout, aside)
		}
		err = d.pins.RemoveAll()
		if err == nil {
			d.pins, err = bpffs.Open(own)
		}
		if err != nil {
			return fmt.Errorf("xdp: PinDir: %w", err)
		}
		return nil
	}
	if err := errors.Join(os.Rename(own, aside), d.pins.Close()); err != nil {
		return fmt.Errorf("xdp: PinDir: %w", err)
	}
	if d.pins, err = bpffs.Open(own); err != nil {
		return fmt.Errorf("xdp: PinDir: %w", err)
	}
	return nil
}

// sizesFit compares the pinned maps, if there are any, with the configuration.
func (d *DataPlane) sizesFit() (bool, error) {
	names, err := d.pins.Names("")
	if err != nil || len(names) == 0 {
		return true, err
	}
	spec, err := d.config.program().Spec()
	if err != nil {
		return false, err
	}
	fits := true
	for name, k := range kept {
		m := spec.Maps[name]
		n, err := bpfload.PinnedSize(d.pins.Path(m.Name))
		if err != nil {
			return false, fmt.Errorf("xdp: PinDir: %s: %w", name, err)
		}
		larger := name == bpf.BalancerMapMembers && n > m.MaxEntries // as some releases made it
		fits = fits && (n == 0 || n == m.MaxEntries || larger || k.Fit == bpfload.Renew)
	}
	return fits, nil
}

// resized is the state in pins of this layout with other sizes, for reading.
type resized struct{ *DataPlane }

func openResized(pins *bpffs.Dir) (legacy, error) {
	d := newDataPlane(Config{}.withDefaults())
	d.pins = pins
	d.setProgram(nil)
	spec, err := d.config.program().Spec()
	if err != nil {
		return nil, err
	}
	asPinned := bpfload.KeptMaps{}
	for name, k := range kept {
		k.Fit = bpfload.Keep
		asPinned[name] = k
	}
	if d.state, err = d.openState(spec, asPinned); err != nil {
		return nil, err
	}
	spec.Programs = nil // it is only read
	// It may be missing, and has an entry for each frontend.
	spec.Maps[bpf.BalancerMapMemberIndex].MaxEntries = spec.Maps[bpf.BalancerMapFrontendCounts].MaxEntries
	load := func(s *ebpf.CollectionSpec) error { return d.loadObjects(s, &d.kernel.BalancerMaps) }
	if _, err := features.Load(features.Balancer, spec, load); err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	if _, err := d.carry(); err != nil {
		return nil, errors.Join(err, d.letGo())
	}
	if err := d.lists.Adopt(); err != nil {
		return nil, errors.Join(fmt.Errorf("xdp: %w", err), d.letGo())
	}
	if _, err := d.readHeld(); err != nil {
		return nil, errors.Join(err, d.letGo())
	}
	return resized{d}, nil
}

func (r resized) Ring(k service.Key) (ringmap.AddressRing, error) {
	h := r.programmed[k]
	if h == nil {
		return nil, nil
	}
	slots := r.rings.Slots(h.ring())
	all := make(ringmap.AddressRing, len(slots))
	for i, s := range slots {
		for j, id := range append([]ring.ID{s.First}, s.Older[:]...) {
			all[i][j] = r.servers.addrOf(id)
		}
	}
	return all, nil
}

func (r resized) Close() error { return r.letGo() }
