package kernel

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/vdn"
)

// HTB classes at an uplink. A slice's class is its number plus one (bpf/vdn/uplink.h), so
// the last slice number has none.
const (
	major     = 0xfa1e // VDN_HTB_MAJOR; also identifies our qdiscs
	rootClass = 1
	restClass = 0xffff
)

// class is an HTB class with its assured rate and its ceiling, in bit/s.
type class struct {
	minor      uint16
	rate, ceil uint64
}

// floor is the minimum rate that HTB requires for a class, in bit/s.
const floor = 8000

// classes divides an uplink: each slice is assured its guarantee. Slices without one and
// the node's remaining traffic share what is left. Unused rate is lent to all.
func classes(u vdn.Uplink, slices []vdn.Slice) ([]class, error) {
	var errs []error
	total := uint64(u.Rate)
	left, without := total, uint64(1)
	for _, s := range slices {
		if uint64(s.GuaranteedRate) > left {
			errs = append(errs, fmt.Errorf("network %s: guarantee %s: uplink %s of %s has but %s left: lower guarantees, or say a higher rate with --uplink",
				s.Name, s.GuaranteedRate, u.Device, u.Rate, vdn.Rate(left)))
		}
		left -= min(left, uint64(s.GuaranteedRate))
		if s.GuaranteedRate == 0 {
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
		if s.GuaranteedRate > 0 {
			c.rate = uint64(s.GuaranteedRate)
		}
		if s.MaxRate > 0 {
			c.ceil = min(total, uint64(s.MaxRate))
		}
		c.rate = min(c.rate, c.ceil)
		all = append(all, c)
	}
	return all, errors.Join(errs...)
}

const (
	frame   = 1514           // bytes
	longest = 64<<10 + frame // of a GSO packet, which HTB sends as one
)

// burst is what a class may send in one burst: 10 ms of its rate, so that a late timer (HZ
// is at least 100) does not reduce the throughput.
func burst(rate uint64) uint32 { return uint32(min(max(rate/8/100, 2*frame), 1<<30)) }

// quantum is how much a class borrows per round: the size of the largest GSO packet, so
// that senders of large packets get no larger share; on slow uplinks 10 ms of the rate.
func quantum(uplink uint64) uint32 { return uint32(min(max(uplink/8/100, 2*frame), longest)) }

// backlog limits the bytes queued in a class: 50 ms at its ceiling, and enough GSO packets
// for TCP to keep the class busy.
func backlog(ceil uint64) uint32 { return uint32(min(max(ceil/8/20, 4*longest), 1<<30)) }
