// Package guard programs the source ranges and rate limits of frontends, which the program
// enforces in bpf/balancer/policy.h. It does not decide which frontends have them. Its
// arithmetic is tested here, its effect with the program in dataplane/xdp.
package guard

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// Guard writes the maps of source ranges and rate limits.
type Guard struct {
	maps *bpf.BalancerMaps
	trie *ebpf.MapSpec // a frontend's source ranges
}

// New returns one for the kernel's maps. trie is the spec of a frontend's source ranges.
func New(maps *bpf.BalancerMaps, trie *ebpf.MapSpec) Guard { return Guard{maps, trie} }

// Rules are a frontend's source ranges and rate limits.
type Rules struct {
	Allow, Deny []netip.Prefix
	Limits      service.Limits
}

// Write programs the rules of the frontend with this number. Ranges
// and limits are each replaced atomically. Absent ones are removed.
func (g Guard) Write(id uint32, r Rules) error {
	programmed, err := g.Read(id)
	if err != nil {
		return err
	}
	if !slices.Equal(programmed.Allow, r.Allow) || !slices.Equal(programmed.Deny, r.Deny) {
		if err := g.writeSources(id, r.Allow, r.Deny); err != nil {
			return err
		}
	}
	if programmed.Limits != r.Limits {
		return g.writeLimits(id, r.Limits)
	}
	return nil
}

// Read returns what is programmed, with the ranges in their original order.
func (g Guard) Read(id uint32) (r Rules, err error) {
	var l bpf.BalancerGuardLimits
	if err := bpf.IgnoreAbsent(g.maps.GuardLimits.Lookup(id, &l)); err != nil {
		return r, fmt.Errorf("read limits: %w", err)
	}
	r.Limits = service.Limits{ClientPackets: l.ClientPackets, ClientOpens: l.ClientOpens, Packets: l.Packets, Opens: l.Opens}
	var trie *ebpf.Map
	if err := g.maps.GuardRanges.Lookup(id, &trie); errors.Is(err, ebpf.ErrKeyNotExist) {
		return r, nil
	} else if err != nil {
		return r, fmt.Errorf("read source ranges: %w", err)
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
		return r, fmt.Errorf("read source ranges: %w", err)
	}
	r.Allow, r.Deny = inOrder(allow), inOrder(deny)
	return r, nil
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
func (g Guard) writeSources(id uint32, allow, deny []netip.Prefix) error {
	if len(allow)+len(deny) == 0 {
		return bpf.IgnoreAbsent(g.maps.GuardRanges.Delete(id))
	}
	if n := len(allow) + len(deny); n > int(g.trie.MaxEntries) {
		return fmt.Errorf("%d source ranges exceed the limit of %d per frontend", n, g.trie.MaxEntries)
	}
	trie, err := ebpf.NewMap(g.trie)
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
		err = g.maps.GuardRanges.Put(id, trie)
	}
	if err != nil {
		return fmt.Errorf("write source ranges: %w", err)
	}
	return nil
}

func (g Guard) writeLimits(id uint32, l service.Limits) error {
	if l == (service.Limits{}) {
		return bpf.IgnoreAbsent(g.maps.GuardLimits.Delete(id))
	}
	v := bpf.BalancerGuardLimits{
		ClientPackets: l.ClientPackets, ClientOpens: l.ClientOpens, Packets: l.Packets, Opens: l.Opens,
		BatchPackets: batch(l.Packets), BatchOpens: batch(l.Opens),
	}
	v.EachPacket.Step, v.EachPacket.Depth = bucket(l.ClientPackets, clientClock)
	v.EachOpen.Step, v.EachOpen.Depth = bucket(l.ClientOpens, clientClock)
	v.AllPackets.Step, v.AllPackets.Depth = bucket(l.Packets, commonClock)
	v.AllOpens.Step, v.AllOpens.Depth = bucket(l.Opens, commonClock)
	if err := g.maps.GuardLimits.Put(id, v); err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return nil
}

// The clocks of buckets, in units per second, and the minimum depth of a bucket.
const (
	clientClock = 16_000_000
	commonClock = 16_000_000_000
	LeastBurst  = 8 // packets
)

// burst returns the depth of a bucket in packets: a tenth of a second.
func burst(rate uint32) uint32 { return max(rate/10, LeastBurst) }

// bucket returns the cost of one packet in clock units, and the bucket's depth;
// zeros if there is no limit, or it exceeds the clock's resolution.
func bucket(rate uint32, clock uint64) (step, depth uint64) {
	if rate == 0 {
		return 0, 0
	}
	step = clock / uint64(rate)
	return step, step * uint64(burst(rate))
}

// batch is the number of tokens that a CPU takes from a shared bucket at a time: so
// few that unused ones do not matter.
func batch(rate uint32) uint32 { return min(max(burst(rate)/128, 1), 32) }

// Key returns a new secret of policy.h's hash.
func Key() [2]uint64 { return [2]uint64{rand.Uint64(), rand.Uint64()} }
