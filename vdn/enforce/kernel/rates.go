package kernel

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/vdn"
)

// Classes of HTB at an uplink. A slice's is its number and one (bpf/vdn/uplink.h),
// so the last number has none.
const (
	major     = 0xfa1e // VDN_HTB_MAJOR; also how our qdiscs are known
	rootClass = 1
	restClass = 0xffff
)

// class is one of HTB: what it has for sure and at most, in bit/s.
type class struct {
	minor      uint16
	rate, ceil uint64
}

// floor is what HTB has to be given as a rate where nothing is left to assure:
// bit/s.
const floor = 8000

// classes shares an uplink: each slice is assured its guarantee, and those that
// have none share what is left, as does the rest of the node's traffic. What
// anybody leaves is lent to all alike.
func classes(u vdn.Uplink, slices []vdn.Slice) ([]class, error) {
	var errs []error
	total := uint64(u.Rate)
	left, without := total, uint64(1)
	for _, s := range slices {
		if uint64(s.Guarantee) > left {
			errs = append(errs, fmt.Errorf("network %s: guarantee %s: uplink %s of %s has but %s left: lower guarantees, or say a higher rate with --uplink",
				s.Name, s.Guarantee, u.Device, u.Rate, vdn.Rate(left)))
		}
		left -= min(left, uint64(s.Guarantee))
		if s.Guarantee == 0 {
			without++
		}
	}
	share := max(left/without, floor)
	all := []class{{minor: rootClass, rate: total, ceil: total}, {minor: restClass, rate: share, ceil: total}}
	for _, s := range slices {
		if s.ID == restClass-1 || s.ID == 0 {
			errs = append(errs, fmt.Errorf("network %s: its number %d has no class in HTB", s.Name, s.ID))
			continue
		}
		c := class{minor: s.ID + 1, rate: share, ceil: total}
		if s.Guarantee > 0 {
			c.rate = uint64(s.Guarantee)
		}
		if s.Max > 0 {
			c.ceil = min(total, uint64(s.Max))
		}
		c.rate = min(c.rate, c.ceil)
		all = append(all, c)
	}
	return all, errors.Join(errs...)
}

const (
	frame   = 1514           // bytes
	longest = 64<<10 + frame // of a bundle of segments, which HTB sends as one
)

// burst is what a class may send at once: 10 ms of its rate, so that a timer that
// comes late (HZ is 100 at the least) costs nothing.
func burst(rate uint64) uint32 { return uint32(min(max(rate/8/100, 2*frame), 1<<30)) }

// quantum is how much a class borrows at its turn: a longest bundle, that who has
// such does not get more than who has not; on slow uplinks 10 ms of it.
func quantum(uplink uint64) uint32 { return uint32(min(max(uplink/8/100, 2*frame), longest)) }

// backlog is how many bytes may wait in a class: 50 ms at its most, and bundles
// enough that TCP keeps it busy.
func backlog(ceil uint64) uint32 { return uint32(min(max(ceil/8/20, 4*longest), 1<<30)) }
