package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/proxy"
)

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// allow programs the source ranges of f, whose number is id. Obsolete ones are removed
// after everything else is written: a client in both lists is served all the time.
func (c *change) allow(f *proxy.Frontend, id uint32) error {
	var wanted []netip.Prefix
	if !f.Closed {
		for _, p := range f.Allow {
			wanted = append(wanted, p.Masked())
		}
		slices.SortFunc(wanted, comparePrefixes)
		wanted = slices.Compact(wanted)
	}
	programmed := c.d.allowed[id]
	for _, p := range wanted {
		if slices.Contains(programmed, p) {
			continue
		}
		if err := c.d.kernel.SourceRanges.Put(toRangeKey(id, p), uint8(1)); err != nil {
			return fmt.Errorf("source range %s (limit %d): %w", p, c.d.config.MaxSourceRanges, err)
		}
		c.d.writes++
	}
	for _, p := range programmed {
		if !slices.Contains(wanted, p) {
			c.ranges = append(c.ranges, sourceRange{id, p})
		}
	}
	if len(wanted) > 0 {
		c.d.allowed[id] = wanted
	} else {
		delete(c.d.allowed, id)
	}
	return nil
}

// disallow removes all source ranges of an id, in the same way.
func (c *change) disallow(id uint32) {
	for _, p := range c.d.allowed[id] {
		c.ranges = append(c.ranges, sourceRange{id, p})
	}
	delete(c.d.allowed, id)
}

// sourceRange is a range of the service with this id.
type sourceRange struct {
	id     uint32
	prefix netip.Prefix
}

// trim removes the obsolete source ranges, except those that were added again in the
// meantime.
func (c *change) trim() error {
	for _, r := range c.ranges {
		if slices.Contains(c.d.allowed[r.id], r.prefix) {
			continue
		}
		if err := c.d.kernel.SourceRanges.Delete(toRangeKey(r.id, r.prefix)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			c.d.stale = true
			return fmt.Errorf("proxy: delete a source range: %w", err)
		}
		c.d.writes++
	}
	return nil
}
