package proxy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
)

// lot is how many entries go to the kernel in one call.
const lot = 4096

// change is one Apply. Things are written so that a program never meets one that
// is half there:
//
//  1. new runs of targets, where no program is reading, and new source ranges,
//  2. the services that name them, each in one step,
//  3. services that are gone; source ranges that nobody names any more.
//
// The old runs and ids rest, and are not used again before every program has
// ended that may have read a service which named them (DataPlane.rouse).
type change struct {
	d      *DataPlane
	keys   []proxyServiceKey
	values []proxyService
	gone   []proxyServiceKey
	old    []proxyService // their runs are given back when all is written
	ids    []uint32       // given back likewise
	ranges []sourceRange
	// sweep says that sockets of UDP may have lost their targets.
	sweep bool
}

// Apply makes the kernel hold the frontends of set as given, and none at the
// keys of gone. It writes only what differs from what is held, also by a
// predecessor. A frontend that cannot be held is refused (proxy.Refusal) and the
// others hold. After an error it may be called again.
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

// put sees to one frontend.
func (c *change) put(f *proxy.Frontend) error {
	d := c.d
	if err := checkFrontend(f); err != nil {
		return err
	}
	key := toKey(f.Key)
	before, there := d.held[key]
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
	d.held[key] = value
	c.keys, c.values = append(c.keys, key), append(c.values, value)
	if there {
		c.sweep = c.sweep || f.Protocol == service.UDP && value.Inside != before.Inside
		c.old = append(c.old, before)
	}
	return nil
}

// valueOf gives what a frontend is to be, without its id, and takes its runs.
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

// remove sees to a key where nothing is to be.
func (c *change) remove(key proxyServiceKey) {
	before, there := c.d.held[key]
	if !there {
		return
	}
	delete(c.d.held, key)
	c.gone = append(c.gone, key)
	c.sweep = c.sweep || key.Proto == uint8(service.UDP)
	c.old = append(c.old, before)
	c.ids = append(c.ids, before.Id)
	c.disallow(before.Id)
}

// flush writes the services that are to be, where there are so many.
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

// giveBack gives back the runs of what has been replaced.
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
