// Package layout describes the memory layout of the entries of BPF maps, so that one
// release can read what another has left pinned: fields by name, from the BTF of the
// objects. It does not read or write maps.
package layout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Map is the layout of a map.
type Map struct {
	// Version counts the layouts that a map has had, from 1.
	Version int `json:"version"`
	// Type is the kernel's map type, as cilium/ebpf names it: "Hash".
	Type      string `json:"type"`
	Flags     uint32 `json:"flags,omitempty"`
	KeySize   uint32 `json:"keySize,omitempty"`
	ValueSize uint32 `json:"valueSize,omitempty"`
	// Entries is how the number of entries is determined: a fixed number, or how a
	// different size is handled.
	Entries string  `json:"entries"`
	Key     []Field `json:"key,omitempty"`
	Value   []Field `json:"value,omitempty"`
	// Inner is the layout of the maps in this one.
	Inner *Map `json:"inner,omitempty"`
	// Enums are enums whose values are in numbers of the entries without that type.
	Enums map[string]string `json:"enums,omitempty"`
}

// Field is a number, or a sequence of numbers, in an entry.
type Field struct {
	// Name is empty for an entry that is not a struct, otherwise like "way[].tag".
	Name         string
	Offset, Size uint32
	// Repeat are the arrays of structs that contain the field, outermost first.
	Repeat []Repeat
	// Values are the values of an enum by name.
	Values map[string]uint64
}

// Repeat is an array: the number of elements, and their distance in bytes.
type Repeat struct{ Count, Stride uint32 }

// Fits reports whether a map of layout b can be used instead of one of layout m, ignoring
// names and numbers of entries.
func (m Map) Fits(b Map) bool {
	same := m.Version == b.Version && m.Type == b.Type && m.Flags == b.Flags && m.KeySize == b.KeySize && m.ValueSize == b.ValueSize
	if !same || (m.Inner == nil) != (b.Inner == nil) {
		return false
	}
	return m.Inner == nil || m.Inner.Fits(*b.Inner)
}

// Layouts are the layouts of a component's maps, by C name.
type Layouts map[string]Map

// History has all versions of each map's layout that a release may find, by C name.
type History map[string][]Map

// ParseHistory parses what History.Format writes.
func ParseHistory(text []byte) (h History, err error) {
	err = json.Unmarshal(text, &h)
	return h, err
}

// Format formats a history with one field per line, for a file under review.
func (h History) Format() ([]byte, error) {
	return json.MarshalIndent(h, "", " ")
}

// Find returns a version of a map's layout.
func (h History) Find(name string, version int) (Map, bool) {
	for _, m := range h[name] {
		if m.Version == version {
			return m, true
		}
	}
	return Map{}, false
}

// Update merges layouts into a history: a new version is added, an existing version is
// replaced.
func (h History) Update(now Layouts) {
	for name, m := range now {
		all := slices.DeleteFunc(h[name], func(old Map) bool { return old.Version == m.Version })
		h[name] = append(all, m)
		slices.SortFunc(h[name], func(a, b Map) int { return cmp.Compare(a.Version, b.Version) })
	}
	maps.DeleteFunc(h, func(name string, _ []Map) bool { _, there := now[name]; return !there })
}

// Check compares layouts with a history. The error names a difference and says what to do.
func (h History) Check(now Layouts) error {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, there := h.Find(name, now[name].Version)
		if !there {
			return fmt.Errorf("map %s: version %d of its layout is not in the history: run the test with -update-layouts", name, now[name].Version)
		}
		a, errA := json.Marshal(was)
		b, errB := json.Marshal(now[name])
		if err := cmp.Or(errA, errB); err != nil {
			return err
		}
		if string(a) != string(b) {
			return fmt.Errorf("map %s: its layout has changed without a new version:\n was %s\n is  %s\n"+
				"Another release still has maps of the old one. Give it another version in the table of kept maps, then run the test with -update-layouts; "+
				"keep the version only where names alone have changed (docs/upgrade.md)", name, a, b)
		}
	}
	for name := range h {
		if _, there := now[name]; !there {
			return fmt.Errorf("map %s is in the history, and pinned no more: run the test with -update-layouts", name)
		}
	}
	return nil
}
