// Package lpm finds the longest of many prefixes that contains an address. A lookup takes
// one step for each different prefix length, whatever the number of prefixes.
package lpm

import (
	"net/netip"
	"slices"
)

// Map has a value for each of its prefixes. The zero value is empty and ready.
type Map[V any] struct {
	values  map[netip.Prefix]V
	lengths []int // different ones, longest first
}

// Put sets the value of a prefix; host bits are ignored.
func (m *Map[V]) Put(p netip.Prefix, v V) {
	if m.values == nil {
		m.values = map[netip.Prefix]V{}
	}
	m.values[p.Masked()] = v
	at, known := slices.BinarySearchFunc(m.lengths, p.Bits(), func(have, want int) int { return want - have })
	if !known {
		m.lengths = slices.Insert(m.lengths, at, p.Bits())
	}
}

// Lookup returns the longest prefix that contains an address, with its value.
func (m *Map[V]) Lookup(a netip.Addr) (p netip.Prefix, v V, ok bool) {
	for _, bits := range m.lengths {
		p, err := a.Prefix(bits)
		if err != nil {
			continue // longer than an address of this family
		}
		if v, ok := m.values[p]; ok {
			return p, v, true
		}
	}
	return netip.Prefix{}, v, false
}

// Covers reports whether any prefix contains an address.
func (m *Map[V]) Covers(a netip.Addr) bool {
	_, _, ok := m.Lookup(a)
	return ok
}
