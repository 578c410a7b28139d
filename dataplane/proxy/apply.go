package proxy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
)

// lot is the number of entries per call to the kernel.
const lot = 4096

// change is one Apply. The order of writes ensures that a program never sees a partial
// state:
//
//  1. new runs of endpoints, where no program is reading, and new source ranges,
//  2. the services that refer to them, each in one step,
//  3. removed services; source ranges no longer referenced.
//
// The old runs and ids rest, and are not reused before every program has ended that may
// have read a service that referred to them (DataPlane.rouse).
type change struct {
	d      *DataPlane
	keys   []proxyServiceKey
	values []proxyService
	gone   []proxyServiceKey
	old    []proxyService // their runs are released when everything is written
	ids    []uint32       // also released then
	ranges []sourceRange
	// sweep reports that UDP sockets may have lost their endpoints.
	sweep bool
}

// Apply programs the frontends of set exactly as given, and removes those of gone. It
// writes only differences from what is programmed, including by a predecessor. A frontend
// that cannot be programmed is rejected (proxy.Refusal), and the others take effect.
// After an error it may be called again.
func (d *DataPlane) Apply(set []proxy.Frontend, gone []proxy.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if d.stale {
		if err := d.read(); err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
	}
	d.wrote = true
	d.runs.recent = recent{}
	c := change{d: d}
	err := c.write(set, gone)
	if c.sweep {
		d.sweeper.wake()
	}
	return err
}

func (c *change) write(set []proxy.Frontend, gone []proxy.Key) error {
	var errs []error
	for i := range set {
		if err := c.put(&set[i]); err != nil {
			errs = append(errs, proxy.Refusal{Key: set[i].Key, Err: err})
		}
		if err := c.flush(lot); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, k := range gone {
		c.remove(toKey(k))
	}
	return errors.Join(append(errs, c.finish())...)
}

// put processes one frontend.
func (c *change) put(f *proxy.Frontend) error {
	d := c.d
	if err := checkFrontend(f); err != nil {
		return err
	}
	key := toKey(f.Key)
	before, there := d.programmed[key]
	value, err := c.valueOf(f, before)
	if err != nil {
		return err
	}
	value.Id = before.Id
	if !there {
		if value.Id, err = d.takeID(); err != nil {
			c.release(value)
			return err
		}
	}
	value.Check = checkOf(key, value)
	if there && value == before && len(f.Allow) == 0 {
		c.release(value)
		return nil
	}
	if err := c.allow(f, value.Id); err != nil {
		d.stale = true
		return err
	}
	if there && value == before {
		c.release(value)
		return nil
	}
	d.programmed[key] = value
	d.surveyed.mark(value.Id, !there)
	c.keys, c.values = append(c.keys, key), append(c.values, value)
	if there {
		c.sweep = c.sweep || f.Protocol == service.UDP && value.Inside != before.Inside
		c.old = append(c.old, before)
	}
	return nil
}

// valueOf returns the entry of a frontend, without its id, and allocates its runs.
func (c *change) valueOf(f *proxy.Frontend, before proxyService) (v proxyService, err error) {
	v = proxyService{
		Affinity: toSeconds(f.Affinity), Kind: proxyServiceKind(f.Kind), Flags: flagsOf(f),
		InsideEmpty: proxyServiceEmpty(f.Inside.Empty), OutsideEmpty: proxyServiceEmpty(f.Outside.Empty),
	}
	if v.Inside, err = c.d.runs.take(f.Inside, before.Inside); err != nil {
		return v, err
	}
	if v.Outside, err = c.d.runs.take(f.Outside, before.Outside); err != nil {
		c.d.runs.release(v.Inside)
	}
	return v, err
}

func (c *change) release(v proxyService) {
	c.d.runs.release(v.Inside)
	c.d.runs.release(v.Outside)
}

func (d *DataPlane) takeID() (uint32, error) {
	id, ok := d.ids.take(1)
	if !ok {
		if err := d.rouse(); err != nil {
			return 0, err
		}
		if id, ok = d.ids.take(1); !ok {
			return 0, fmt.Errorf("all %d frontends are in use: raise MaxFrontends (--proxy-max-frontends)", len(d.connections))
		}
	}
	d.connections[id] = 0
	return id, nil
}

// remove processes a key to be removed.
func (c *change) remove(key proxyServiceKey) {
	before, there := c.d.programmed[key]
	if !there {
		return
	}
	delete(c.d.programmed, key)
	c.d.surveyed.mark(before.Id, false)
	c.gone = append(c.gone, key)
	c.sweep = c.sweep || key.Proto == uint8(service.UDP)
	c.old = append(c.old, before)
	c.ids = append(c.ids, before.Id)
	c.disallow(before.Id)
}

// flush writes the pending services, if there are at least this many.
func (c *change) flush(least int) error {
	if len(c.keys) < max(least, 1) {
		return nil
	}
	d := c.d
	n, err := d.kernel.Services.BatchUpdate(c.keys, c.values, nil)
	d.writes += uint64(n)
	if err != nil {
		d.stale = true
		return fmt.Errorf("proxy: write %d frontends: %w", len(c.keys), err)
	}
	c.keys, c.values = c.keys[:0], c.values[:0]
	c.giveBack()
	return nil
}

// giveBack releases the runs of replaced services.
func (c *change) giveBack() {
	for _, v := range c.old {
		c.release(v)
	}
	c.old = c.old[:0]
}

func (c *change) finish() error {
	d := c.d
	if err := c.flush(0); err != nil {
		return err
	}
	for gone := range slices.Chunk(c.gone, lot) {
		n, err := d.kernel.Services.BatchDelete(gone, nil)
		d.writes += uint64(n)
		if err != nil {
			d.stale = true
			return fmt.Errorf("proxy: delete %d frontends: %w", len(gone), err)
		}
	}
	c.giveBack()
	for _, id := range c.ids {
		d.ids.giveBack(extent{id, 1})
	}
	return c.trim()
}
