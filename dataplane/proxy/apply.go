package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proxy"
	"github.com/fairlead/fairlead/service"
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
	flows  []ended
}

// ended are targets that a frontend of UDP has no longer.
type ended struct {
	key     proxy.Key
	targets []netip.AddrPort
}

// Apply makes the kernel hold the frontends of set as given, and none at the
// keys of gone. It writes only what differs from what is held, also by a
// predecessor. A frontend that cannot be held is refused by name and the others
// hold. After an error it may be called again.
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
		d.stale = false
	}
	c := change{d: d}
	return errors.Join(c.write(set, gone), c.endFlows())
}

func (c *change) write(set []proxy.Frontend, gone []proxy.Key) error {
	var errs []error
	for i := range set {
		if err := c.put(&set[i]); err != nil {
			errs = append(errs, fmt.Errorf("proxy: frontend %s: %w", describe(set[i].Key), err))
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

func describe(k proxy.Key) string {
	return fmt.Sprintf("%s %s", k.Protocol, netip.AddrPortFrom(k.Addr, k.Port))
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
		c.lost(key, before, value)
		c.old = append(c.old, before)
	}
	return nil
}

// valueOf gives what a frontend is to be, without its id, and takes its runs.
func (c *change) valueOf(f *proxy.Frontend, before proxyService) (v proxyService, err error) {
	v = proxyService{Affinity: toSeconds(f.Affinity), Kind: proxyServiceKind(f.Kind), Flags: flagsOf(f)}
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
			return 0, fmt.Errorf("all %d frontends are in use: raise MaxFrontends", len(d.connections))
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
	c.lost(key, before, proxyService{})
	c.old = append(c.old, before)
	c.ids = append(c.ids, before.Id)
	c.disallow(before.Id)
}

// lost notes the targets that a frontend of UDP had before and has not after.
func (c *change) lost(key proxyServiceKey, before, after proxyService) {
	if key.Proto != uint8(service.UDP) {
		return
	}
	runs, e := &c.d.runs, ended{key: fromKey(key)}
	for _, before := range []proxyRun{before.Inside, before.Outside} {
		if before == after.Inside || before == after.Outside {
			continue
		}
		for _, t := range runs.at(before) {
			if a := t.addrPort(); !runs.has(after.Inside, a) && !runs.has(after.Outside, a) {
				e.targets = append(e.targets, a)
			}
		}
	}
	slices.SortFunc(e.targets, netip.AddrPort.Compare)
	if e.targets = slices.Compact(e.targets); len(e.targets) > 0 {
		c.flows = append(c.flows, e)
	}
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

func (c *change) endFlows() error {
	if len(c.flows) == 0 {
		return nil
	}
	c.d.sweeper.wake()
	if c.d.config.Flows == nil {
		return nil
	}
	var errs []error
	for _, e := range c.flows {
		if err := c.d.config.Flows.Forget(e.key, e.targets); err != nil {
			errs = append(errs, fmt.Errorf("proxy: flows of %s: %w", describe(e.key), err))
		}
	}
	return errors.Join(errs...)
}
