package rib

import (
	"cmp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// noPreference applies to a path without a local preference.
const noPreference = 100

func preference(a *wire.Attributes) uint32 {
	if a.HasPref {
		return a.LocalPref
	}
	return noPreference
}

// compare orders paths by preference (RFC 4271, section 9.1.2.2). Of paths from other ASes,
// the oldest is preferred (RFC 5004).
func compare(p, q Path) int {
	a, b := p.Attributes.Value(), q.Attributes.Value()
	if c := cmp.Or(
		cmp.Compare(preference(&b), preference(&a)),
		cmp.Compare(a.PathLength(), b.PathLength()),
		cmp.Compare(a.Origin, b.Origin),
		compareMED(&a, &b),
	); c != 0 || p.From == nil || q.From == nil {
		return c
	}
	switch {
	case p.From.External && q.From.External:
		return cmp.Compare(p.age, q.age)
	case p.From.External:
		return -1
	case q.From.External:
		return 1
	}
	return cmp.Or(p.From.ID.Compare(q.From.ID), p.From.Address.Compare(q.From.Address), cmp.Compare(p.key, q.key))
}

// compareMED compares metrics, which have a meaning only between routes from the same AS.
func compareMED(a, b *wire.Attributes) int {
	if a.FirstAS() != b.FirstAS() {
		return 0
	}
	return cmp.Compare(a.MED, b.MED)
}

// Multipath returns the paths that are as good as the best one. The list is sorted.
func Multipath(list []Path) []Path {
	for i := range list {
		if i > 0 && !equal(list[0], list[i]) {
			return list[:i]
		}
	}
	return list
}

// equal reports whether packets may take either path.
func equal(p, q Path) bool {
	if (p.From == nil) != (q.From == nil) || p.From != nil && p.From.External != q.From.External {
		return false
	}
	a, b := p.Attributes.Value(), q.Attributes.Value()
	return preference(&a) == preference(&b) && a.PathLength() == b.PathLength() && a.Origin == b.Origin && a.MED == b.MED
}
