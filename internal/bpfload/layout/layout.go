// Package layout describes how the entries of BPF maps lie in memory, so that one
// release can read what another has left pinned: fields by their names, from the
// BTF of the objects. It reads and writes no map.
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
	// Type is the kernel's, as cilium/ebpf names it: "Hash".
	Type      string `json:"type"`
	Flags     uint32 `json:"flags,omitempty"`
	KeySize   uint32 `json:"keySize,omitempty"`
	ValueSize uint32 `json:"valueSize,omitempty"`
	// Entries says who decides how many there are: a number that is the same
	// everywhere, or what becomes of another one.
	Entries string  `json:"entries"`
	Key     []Field `json:"key,omitempty"`
	Value   []Field `json:"value,omitempty"`
	// Inner is the layout of the maps in this one.
	Inner *Map `json:"inner,omitempty"`
	// Enums are those that numbers in the entries are made of, where no field has
	// their type.
	Enums map[string]string `json:"enums,omitempty"`
}

// Field is a number, or a row of numbers, in an entry.
type Field struct {
	// Name is empty for an entry that is no struct, else "way[].tag".
	Name         string
	Offset, Size uint32
	// Repeat are the arrays of structs that the field is in, outermost first.
	Repeat []Repeat
	// Values are the names of an enum's values.
	Values map[string]uint64
}

// Repeat is an array: how many elements, so many bytes apart.
type Repeat struct{ Count, Stride uint32 }

// Fits reports whether a map of layout b can be used in the place of one of layout
// m: names do not count, nor do numbers of entries.
func (m Map) Fits(b Map) bool {
	same := m.Version == b.Version && m.Type == b.Type && m.Flags == b.Flags && m.KeySize == b.KeySize && m.ValueSize == b.ValueSize
	if !same || (m.Inner == nil) != (b.Inner == nil) {
		return false
	}
	return m.Inner == nil || m.Inner.Fits(*b.Inner)
}

// Layouts are the layouts of a component's maps, by the names of the maps in C.
type Layouts map[string]Map

// History has every version of each map's layout that a release may find, by the
// names of the maps in C.
type History map[string][]Map

// ParseHistory reads what History.Format has written.
func ParseHistory(text []byte) (h History, err error) {
	err = json.Unmarshal(text, &h)
	return h, err
}

// Format writes a history one field a line, for a file that is reviewed.
func (h History) Format() ([]byte, error) {
	return json.MarshalIndent(h, "", " ")
}

// Find gives a version of a map's layout.
func (h History) Find(name string, version int) (Map, bool) {
	for _, m := range h[name] {
		if m.Version == version {
			return m, true
		}
	}
	return Map{}, false
}

// Update puts layouts into a history: one of a new version is added, one of a
// version that is there replaces it.
func (h History) Update(now Layouts) {
	for name, m := range now {
		all := slices.DeleteFunc(h[name], func(old Map) bool { return old.Version == m.Version })
		h[name] = append(all, m)
		slices.SortFunc(h[name], func(a, b Map) int { return cmp.Compare(a.Version, b.Version) })
	}
	maps.DeleteFunc(h, func(name string, _ []Map) bool { _, there := now[name]; return !there })
}

// Check compares layouts with a history, and says of each that differs from the one
// of its version what to do about that.
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
