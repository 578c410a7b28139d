package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// guardOf are a frontend's source ranges and rate limits, as enforced by policy.h.
type guardOf struct {
	allow, deny []netip.Prefix
	limits      service.Limits
}

// isGuarded reports whether the program checks a frontend's clients with policy.h.
func isGuarded(h *programmed) bool {
	return h != nil && h.value.Flags&bpf.BalancerFrontendFlagsFRONTEND_GUARDED != 0
}

// writeGuard programs the source ranges and rate limits of f, whose number is id. Ranges
// and limits are each replaced atomically. Absent ones are removed.
func (d *DataPlane) writeGuard(id uint32, f desired.Frontend) error {
	programmed, err := d.readGuard(id)
	if err != nil {
		return err
	}
	if !slices.Equal(programmed.allow, f.Allow) || !slices.Equal(programmed.deny, f.Deny) {
		if err := d.writeSources(id, f.Allow, f.Deny); err != nil {
			return err
		}
	}
	if programmed.limits != f.Limits {
		return d.writeLimits(id, f.Limits)
	}
	return nil
}

// clearGuard removes what writeGuard wrote. Absent entries are not an error.
func (d *DataPlane) clearGuard(id uint32) error {
	return errors.Join(absentIsFine(d.kernel.GuardRanges.Delete(id)), absentIsFine(d.kernel.GuardLimits.Delete(id)))
}

func absentIsFine(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// readGuard returns what is programmed, with the ranges in their original order.
func (d *DataPlane) readGuard(id uint32) (g guardOf, err error) {
	var l bpf.BalancerGuardLimits
	if err := absentIsFine(d.kernel.GuardLimits.Lookup(id, &l)); err != nil {
		return g, fmt.Errorf("read limits: %w", err)
	}
	g.limits = service.Limits{ClientPackets: l.ClientPackets, ClientOpens: l.ClientOpens, Packets: l.Packets, Opens: l.Opens}
	var trie *ebpf.Map
	if err := d.kernel.GuardRanges.Lookup(id, &trie); errors.Is(err, ebpf.ErrKeyNotExist) {
		return g, nil
	} else if err != nil {
		return g, fmt.Errorf("read source ranges: %w", err)
	}
	defer trie.Close()
	var allow, deny []placed
	var key bpf.BalancerGuardRangeKey
	var place uint32
	entries := trie.Iterate()
	for entries.Next(&key, &place) {
		list, prefix := fromRangeKey(key)
		switch {
		case place == 0: // not from the configuration
		case list&bpf.BalancerGuardListGUARD_DENY != 0:
			deny = append(deny, placed{place, prefix})
		default:
			allow = append(allow, placed{place, prefix})
		}
	}
	if err := entries.Err(); err != nil {
		return g, fmt.Errorf("read source ranges: %w", err)
	}
	g.allow, g.deny = inOrder(allow), inOrder(deny)
	return g, nil
}

// placed is a range and its position in the configured list.
type placed struct {
	place  uint32
	prefix netip.Prefix
}

func inOrder(ranges []placed) (prefixes []netip.Prefix) {
	slices.SortFunc(ranges, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for _, r := range ranges {
		prefixes = append(prefixes, r.prefix)
	}
	return prefixes
}

// listBits is the length of a range key's prefix before its address.
const listBits = 32

func toRangeKey(list bpf.BalancerGuardList, p netip.Prefix) bpf.BalancerGuardRangeKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	} else {
		list |= bpf.BalancerGuardListGUARD_V6
	}
	return bpf.BalancerGuardRangeKey{
		Prefixlen: uint32(listBits + bits), List: list, Addr: entry.ToAddr(p.Addr()),
	}
}

func fromRangeKey(k bpf.BalancerGuardRangeKey) (bpf.BalancerGuardList, netip.Prefix) {
	list, bits := k.List, int(k.Prefixlen)-listBits
	if list&bpf.BalancerGuardListGUARD_V6 == 0 {
		return list, netip.PrefixFrom(entry.FromAddr(k.Addr), bits-96)
	}
	return list, netip.PrefixFrom(entry.FromAddr(k.Addr), bits)
}

// writeSources replaces the trie. The kernel returns when no packet uses the old one any
// more.
func (d *DataPlane) writeSources(id uint32, allow, deny []netip.Prefix) error {
	if len(allow)+len(deny) == 0 {
		return absentIsFine(d.kernel.GuardRanges.Delete(id))
	}
	if n := len(allow) + len(deny); n > int(d.guardTrie.MaxEntries) {
		return fmt.Errorf("%d source ranges exceed the limit of %d per frontend", n, d.guardTrie.MaxEntries)
	}
	trie, err := ebpf.NewMap(d.guardTrie)
	if err != nil {
		return fmt.Errorf("make source ranges: %w", err)
	}
	defer trie.Close()
	put := func(list bpf.BalancerGuardList, p netip.Prefix, place int) {
		if err == nil {
			err = trie.Put(toRangeKey(list, p), uint32(place))
		}
	}
	for i, p := range allow {
		put(bpf.BalancerGuardListGUARD_ALLOW, p, i+1)
	}
	for i, p := range deny {
		put(bpf.BalancerGuardListGUARD_DENY, p, i+1)
	}
	if len(allow) == 0 {
		for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			put(bpf.BalancerGuardListGUARD_ALLOW, netip.PrefixFrom(all, 0), 0)
		}
	}
	if err == nil {
		err = d.kernel.GuardRanges.Put(id, trie)
	}
	if err != nil {
		return fmt.Errorf("write source ranges: %w", err)
	}
	return nil
}

func (d *DataPlane) writeLimits(id uint32, l service.Limits) error {
	if l == (service.Limits{}) {
		return absentIsFine(d.kernel.GuardLimits.Delete(id))
	}
	v := bpf.BalancerGuardLimits{
		ClientPackets: l.ClientPackets, ClientOpens: l.ClientOpens, Packets: l.Packets, Opens: l.Opens,
		BatchPackets: guardBatch(l.Packets), BatchOpens: guardBatch(l.Opens),
	}
	v.EachPacket.Step, v.EachPacket.Depth = guardBucket(l.ClientPackets, clientClock)
	v.EachOpen.Step, v.EachOpen.Depth = guardBucket(l.ClientOpens, clientClock)
	v.AllPackets.Step, v.AllPackets.Depth = guardBucket(l.Packets, commonClock)
	v.AllOpens.Step, v.AllOpens.Depth = guardBucket(l.Opens, commonClock)
	if err := d.kernel.GuardLimits.Put(id, v); err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return nil
}

// The clocks of buckets, in units per second, and the minimum depth of a bucket.
const (
	clientClock = 16_000_000
	commonClock = 16_000_000_000
	leastBurst  = 8 // packets
)

// guardBurst returns the depth of a bucket in packets: a tenth of a second.
func guardBurst(rate uint32) uint32 { return max(rate/10, leastBurst) }

// guardBucket returns the cost of one packet in clock units, and the bucket's depth;
// zeros if there is no limit, or it exceeds the clock's resolution.
func guardBucket(rate uint32, clock uint64) (step, depth uint64) {
	if rate == 0 {
		return 0, 0
	}
	step = clock / uint64(rate)
	return step, step * uint64(guardBurst(rate))
}

// guardBatch is the number of tokens that a CPU takes from a shared bucket at a time: so
// few that unused ones do not matter.
func guardBatch(rate uint32) uint32 { return min(max(guardBurst(rate)/128, 1), 32) }

// guardKey returns the secret of policy.h's hash.
func guardKey() [2]uint64 { return [2]uint64{rand.Uint64(), rand.Uint64()} }
