package dsr

import (
	"maps"
	"net/netip"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/netorder"
)

// Sources are the source ranges of one frontend, as in desired.Frontend: with an empty
// Allow, all clients are allowed except those in Deny.
type Sources struct {
	service.Key
	Allow, Deny []netip.Prefix
}

// sourceRanges is the content of the map source_ranges.
type sourceRanges map[dsrSourceKey]dsrSourceRule

const (
	sourceAllow = dsrSourceListSOURCE_ALLOW
	sourceDeny  = dsrSourceListSOURCE_DENY
	sourceV6    = dsrSourceListSOURCE_V6

	sourceOut   = dsrSourceRuleSOURCE_OUT
	sourceIn    = dsrSourceRuleSOURCE_IN
	sourceInBut = dsrSourceRuleSOURCE_IN_BUT
)

// Bits of a key before the client's address, and of that before an IPv4 address.
const frontendBits, mappedBits = 160, 96

// newSourceRanges returns the map's entries for these frontends.
func newSourceRanges(all []Sources) sourceRanges {
	ranges := sourceRanges{}
	for _, s := range all {
		if len(s.Allow)+len(s.Deny) == 0 {
			continue
		}
		in, others := sourceIn, sourceOut
		if len(s.Deny) > 0 {
			in = sourceInBut
		}
		if len(s.Allow) == 0 {
			others = in
		}
		for _, everyone := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			ranges[s.key(sourceAllow, netip.PrefixFrom(everyone, 0))] = others
		}
		for _, p := range s.Allow {
			ranges[s.key(sourceAllow, p)] = in
		}
		for _, p := range s.Deny {
			ranges[s.key(sourceDeny, p)] = sourceOut
		}
	}
	return ranges
}

// key returns the key of a range in one of the frontend's lists.
func (s Sources) key(list dsrSourceList, p netip.Prefix) dsrSourceKey {
	k := dsrSourceKey{
		Prefixlen: uint32(frontendBits + p.Bits()), Vip: addrOf(s.VIP.Unmap()), Port: netorder.Port(s.Port),
		Proto: uint8(s.Protocol), List: list, Client: addrOf(p.Masked().Addr()),
	}
	if s.Range() {
		k.Port = 0
	}
	if p.Addr().Is4() {
		k.Prefixlen += mappedBits
	} else {
		k.List |= sourceV6
	}
	return k
}

// SetSources makes the agent drop packets of clients outside these ranges. The pinned
// state stays in force until the first call.
func (h *Agent) SetSources(all []Sources) error {
	wanted := newSourceRanges(all)
	return h.worker.Do(func() error {
		if len(wanted) > 0 {
			if err := h.obj.SourcesLimited.Set(uint32(1)); err != nil {
				return err
			}
		}
		if err := h.writeSources(wanted); err != nil || len(wanted) > 0 {
			return err
		}
		return h.obj.SourcesLimited.Set(uint32(0))
	})
}

// writeSources changes the rule for clients in no range while all ranges, old and new,
// are present: a client that both allow is never rejected.
func (h *Agent) writeSources(wanted sourceRanges) error {
	at, err := bpfmap.Read[dsrSourceKey, dsrSourceRule](h.obj.SourceRanges)
	if err != nil {
		return err
	}
	for _, whole := range []bool{false, true} {
		next := maps.Clone(at)
		maps.DeleteFunc(next, func(k dsrSourceKey, _ dsrSourceRule) bool { return whole && k.isWhole() })
		for k, rule := range wanted {
			if k.isWhole() == whole {
				next[k] = rule
			}
		}
		if err := bpfmap.Change(h.obj.SourceRanges, at, next); err != nil {
			return err
		}
		at = next
	}
	return bpfmap.Change(h.obj.SourceRanges, at, wanted)
}

// isWhole reports whether a range is a complete family.
func (k dsrSourceKey) isWhole() bool {
	return k.Prefixlen == frontendBits || k.List&sourceV6 == 0 && k.Prefixlen == frontendBits+mappedBits
}

// inheritSources makes the programs check ranges that a predecessor left.
func (h *Agent) inheritSources() error {
	programmed, err := bpfmap.Read[dsrSourceKey, dsrSourceRule](h.obj.SourceRanges)
	if err != nil || len(programmed) == 0 {
		return err
	}
	return h.obj.SourcesLimited.Set(uint32(1))
}
