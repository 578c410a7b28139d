package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/tc"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// reasons names the drop reasons that pods count, by their numbers in bpf/vdn/maps.h.
var reasons = map[vdnVdnReason]string{
	vdnVdnReasonVDN_REASON_OVER_RATE: enforce.OverRate,
	vdnVdnReasonVDN_REASON_ISOLATED:  enforce.Isolated,
	vdnVdnReasonVDN_REASON_OUTSIDE:   enforce.Outside,
	vdnVdnReasonVDN_REASON_SPOOFED:   enforce.Spoofed,
}

// Counters implements enforce.Enforcer.
func (k *Kernel) Counters(context.Context) (counters []vdn.Counter, err error) {
	err = k.do(func() error {
		counters, err = k.counters()
		return err
	})
	return counters, err
}

func (k *Kernel) counters() ([]vdn.Counter, error) {
	refused, err := k.refused()
	errs := []error{err}
	var all []vdn.Counter
	links, _ := k.uplinks() // absent uplinks have no counters
	shared := map[int]bool{}
	for _, u := range links {
		held, err := classesOf(u.link)
		errs = append(errs, err)
		shared[u.link.Attrs().Index] = true
		for _, s := range k.plan.Slices {
			if c := held[s.ID+1]; c != nil {
				all = append(all, sliceCounter(u, s, c, refused))
			}
		}
	}
	for _, point := range k.hook.Points() {
		if point.Program == vdnProgUplinkOut && !shared[point.Device] {
			all = append(all, k.below(point.Device, refused)...)
		}
	}
	for _, p := range k.pods {
		c, err := p.counter()
		errs = append(errs, err)
		if p.port > 0 {
			addRefused(c, vdnVdnRefusedKey{Ifindex: uint32(p.port)}, refused)
		}
		all = append(all, c)
	}
	enforce.Sort(all)
	return all, errors.Join(errs...)
}

// sliceCounter returns a slice's counter at an uplink; HTB counts what was sent.
func sliceCounter(u uplink, s vdn.Slice, c *netlink.HtbClass, refused map[vdnVdnRefusedKey]uint64) vdn.Counter {
	counter := vdn.Counter{Network: s.Name, Device: u.Device, Drops: map[string]uint64{}}
	if stats := c.Attrs().Statistics; stats != nil {
		counter.SentBytes = stats.Basic.Bytes
		enforce.AddDrops(counter, enforce.OverRate, uint64(stats.Queue.Drops))
	}
	addRefused(counter, vdnVdnRefusedKey{Ifindex: uint32(u.link.Attrs().Index), Slice: s.ID}, refused)
	return counter
}

// below returns the drops at a device below pods whose rate is not shared.
func (k *Kernel) below(device int, refused map[vdnVdnRefusedKey]uint64) (all []vdn.Counter) {
	for _, s := range k.plan.Slices {
		c := vdn.Counter{Network: s.Name, Device: tc.DeviceName(device), Drops: map[string]uint64{}}
		if addRefused(c, vdnVdnRefusedKey{Ifindex: uint32(device), Slice: s.ID}, refused); len(c.Drops) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// addRefused adds the drops at one device, for each reason.
func addRefused(c vdn.Counter, key vdnVdnRefusedKey, refused map[vdnVdnRefusedKey]uint64) {
	for reason, name := range reasons {
		key.Reason = reason
		enforce.AddDrops(c, name, refused[key])
	}
	key.Reason = vdnVdnReasonVDN_REASON_BYPASSED
	enforce.AddDrops(c, enforce.Bypassed, refused[key])
}

// refused returns the drops at the uplinks, summed over CPUs.
func (k *Kernel) refused() (map[vdnVdnRefusedKey]uint64, error) {
	sums := map[vdnVdnRefusedKey]uint64{}
	var key vdnVdnRefusedKey
	var perCPU []uint64
	it := k.shared.Refused.Iterate()
	for it.Next(&key, &perCPU) {
		for _, n := range perCPU {
			sums[key] += n
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read what uplinks refused: %w", err)
	}
	return sums, nil
}

func (p *pod) counter() (vdn.Counter, error) {
	c := vdn.Counter{Network: p.att.Network, Attachment: p.att.ID, Device: p.att.Interface, Drops: map[string]uint64{}}
	bytes := map[vdnPodWay]*uint64{vdnPodWayPOD_SENDS: &c.SentBytes, vdnPodWayPOD_RECEIVES: &c.ReceivedBytes}
	for way, sum := range bytes {
		var perCPU []vdnVdnPodCount
		if err := p.obj.Counts.Lookup(uint32(way), &perCPU); err != nil {
			return c, fmt.Errorf("counters of attachment %s: %w", p.att.ID, err)
		}
		for _, n := range perCPU {
			*sum += n.Bytes
			for reason, name := range reasons {
				enforce.AddDrops(c, name, n.Drops[reason])
			}
		}
	}
	return c, nil
}
