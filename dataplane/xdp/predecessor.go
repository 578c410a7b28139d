package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/layout2"
	"github.com/fairlead/fairlead/dataplane/xdp/ringmap"
	"github.com/fairlead/fairlead/internal/bpffs"
)

// predecessor is a pin directory that cannot be used as it is: of an older layout, or
// with other sizes. Its contents are written again, and then its links are updated to the
// new program: forwarding never stops.
type predecessor struct {
	pins *bpffs.Dir
	open func(*bpffs.Dir) (legacy, error)
	// inCharge reports that its program is attached, and none of ours.
	inCharge bool
	// resized reports that it had the name of our own directory.
	resized bool
}

// legacy is the state of a predecessor.
type legacy interface {
	List() ([]desired.Frontend, error)
	// Ring returns the ring of a listed frontend.
	Ring(service.Key) (ringmap.AddressRing, error)
	Close() error
}

// resizedFolder is where the pins with other sizes are while they are replaced.
const resizedFolder = ownFolder + "-resized"

// openPredecessor opens the directory to take over, if there is one.
func (d *DataPlane) openPredecessor() (*predecessor, error) {
	for _, p := range []*predecessor{{open: openResized, resized: true}, {open: openTwo}} {
		path := filepath.Join(d.config.PinDir, p.folder())
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		pins, err := bpffs.Open(path)
		if errors.Is(err, bpffs.ErrInUse) {
			return nil, fmt.Errorf("xdp: PinDir: %w: stop the agent of the other version first: its frontends continue to forward", err)
		}
		if err != nil {
			return nil, fmt.Errorf("xdp: PinDir: %w", err)
		}
		p.pins = pins
		if p.inCharge, err = d.isInCharge(pins); err != nil {
			return nil, errors.Join(err, pins.Close())
		}
		return p, nil
	}
	return nil, nil
}

func (p *predecessor) folder() string {
	if p.resized {
		return resizedFolder
	}
	return layout2.Folder
}

func (d *DataPlane) isInCharge(pins *bpffs.Dir) (bool, error) {
	theirs, err := pins.Names(attach.Prefix)
	if err != nil {
		return false, fmt.Errorf("xdp: PinDir: %w", err)
	}
	ours, err := d.pins.Names(attach.Prefix)
	if err != nil {
		return false, fmt.Errorf("xdp: PinDir: %w", err)
	}
	return len(theirs) > 0 && len(ours) == 0, nil
}

// inherit programs exactly what the predecessor has programmed, if that is the one that
// forwards.
func (d *DataPlane) inherit(p *predecessor) error {
	if !p.inCharge {
		return nil
	}
	if err := d.inheritAll(p); err != nil {
		return fmt.Errorf("xdp: take over %s: %w", p.pins.Path(""), err)
	}
	return nil
}

func (d *DataPlane) inheritAll(p *predecessor) error {
	old, err := p.open(p.pins)
	if err != nil {
		return err
	}
	defer old.Close()
	frontends, err := old.List()
	if err != nil {
		return err
	}
	stays := map[service.Key]bool{}
	for _, f := range frontends {
		stays[f.Key] = true
		past, err := old.Ring(f.Key)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
		d.mu.Lock()
		err = d.upsert(f, past)
		d.mu.Unlock()
		if err != nil {
			return err
		}
	}
	for k := range d.programmed { // left by an interrupted attempt
		if !stays[k] {
			if err := d.Delete(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes the directory, whose program is no longer attached.
func (p *predecessor) remove() error {
	if err := p.pins.RemoveAll(); err != nil {
		return fmt.Errorf("xdp: remove the pins of a predecessor: %w", err)
	}
	return nil
}

// giveUp ends a failed takeover: if the predecessor is still in charge, everything is as
// before; else the next Open continues.
func (d *DataPlane) giveUp(p *predecessor) error {
	if still, err := d.isInCharge(p.pins); err != nil || !still {
		return errors.Join(err, p.pins.Close(), d.Close())
	}
	err := errors.Join(d.letGo(), d.pins.RemoveAll())
	if p.resized {
		err = errors.Join(err, os.Rename(p.pins.Path(""), filepath.Join(d.config.PinDir, ownFolder)))
	}
	return errors.Join(err, p.pins.Close())
}

func openTwo(pins *bpffs.Dir) (legacy, error) { return layout2.Open(pins) }
