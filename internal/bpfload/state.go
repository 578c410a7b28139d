package bpfload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpfload/layout"
)

// Kept describes a map that outlives its agent: the version of its layout in this release,
// and how to handle another size.
type Kept struct {
	Fit Fit
	// Written means that programs write it, not only the agent: what they write after it
	// was copied is copied again.
	Written bool
	// Hashed means that the position of entries depends on their number, so that they
	// cannot be copied to another size.
	Hashed bool
	// Version counts the layouts that the map has had; 0 means 1.
	Version int
	// Enums are enums of the object whose values are in numbers of the entries. To tests, a
	// change of them is a change of the layout.
	Enums []string
	// Seal updates what an entry contains about its own bytes, such as a checksum, after a
	// copy from another layout; nil for none.
	Seal func(key, value []byte)
}

// KeptMaps are a component's kept maps, by C name.
type KeptMaps map[string]Kept

// Layouts describes the kept maps of an object.
func (k KeptMaps) Layouts(spec *ebpf.CollectionSpec) (layout.Layouts, error) {
	all := layout.Layouts{}
	for name, kept := range k {
		m := spec.Maps[name]
		if m == nil {
			return nil, fmt.Errorf("map %s is kept, and not in the object", name)
		}
		one, err := layout.Describe(m, kept.Version, kept.Fit.String())
		if err != nil {
			return nil, err
		}
		if !carries(m.Type) {
			one.Key, one.Value = nil, nil // not copied to another release
		}
		all[name] = one
	}
	return all, nil
}

// Pin returns the pin name of a version of a map. The first version has its C name, as in
// releases without versions.
func Pin(name string, version int) string {
	if version <= 1 {
		return name
	}
	return name + "-" + strconv.Itoa(version)
}

// Pin returns this release's pin name of a map.
func (k KeptMaps) Pin(name string) string { return Pin(name, k[name].Version) }

// Source is the input of a State.
type Source struct {
	// Folder is the directory of the pins. The caller must lock it.
	Folder string
	// Maps are the maps that outlive the agent.
	Maps KeptMaps
	// History has the layouts of releases that left no record, as written by
	// layout.History.Format.
	History []byte
	// Attached are the programs that currently forward traffic.
	Attached []ebpf.ProgramID
}

// State is the pinned maps of a component while one release takes over from another, older
// or newer, whose maps may have other layouts:
//
//	OpenState    marks the maps of the object to be pinned, next to those that a
//	             release with other layouts has left
//	Carry        copies their contents, once the programs are loaded; again, what has
//	             changed since
//	Replace      records that the programs are about to be attached
//	Settle       copies what was written meanwhile, and removes unused maps
//
// A failure or exit at any point leaves a directory that either release can open.
type State struct {
	Source
	own     layout.Layouts
	history layout.History
	record  record
	names   []string // all maps of the object
	carries []carry
	merges  []carry  // processed after carries
	stale   []string // pins that are no longer used
	// programs are the arguments of Replace.
	programs []ebpf.ProgramID
}

// carry is a map whose contents are copied from one of another layout.
type carry struct {
	name, from, to string // pins
	was, is        layout.Map
	// merge means that both are in use.
	merge bool
	// seen has the entries of an array as last copied; done means that they were.
	seen *[]byte
	done bool
}

// OpenState decides which pinned maps to use, and which to copy.
func OpenState(spec *ebpf.CollectionSpec, from Source) (*State, error) {
	own, err := from.Maps.Layouts(spec)
	if err != nil {
		return nil, err
	}
	s := &State{Source: from, own: own}
	if s.history, err = layout.ParseHistory(from.History); err != nil {
		return nil, fmt.Errorf("history of layouts: %w", err)
	}
	if s.record, err = readRecord(from.Folder); err != nil {
		return nil, err
	}
	for name := range spec.Maps {
		if !strings.HasPrefix(name, ".") { // never pinned
			s.names = append(s.names, name)
		}
	}
	for name := range from.Maps {
		if err := s.openMap(spec.Maps[name], name); err != nil {
			return nil, fmt.Errorf("pinned map %s: %w", name, err)
		}
	}
	s.carries = append(s.carries, s.merges...)
	return s, nil
}

func (s *State) path(pin string) string { return filepath.Join(s.Folder, pin) }

// openMap decides for one map.
func (s *State) openMap(m *ebpf.MapSpec, name string) error {
	is := s.own[name]
	m.Pinning, m.Name = ebpf.PinByName, Pin(name, is.Version)
	if err := s.setAside(m); err != nil {
		return err
	}
	others, err := s.others(name, is)
	if err != nil {
		return err
	}
	there, err := exists(s.path(m.Name))
	if err != nil {
		return err
	}
	for _, o := range others {
		s.stale = append(s.stale, o.from)
	}
	source := s.source(name, is, others, there)
	if there && source != nil && !s.attached(name, is.Version) {
		// Another release has been active since: our map is stale, except for what that
		// release has not copied yet.
		if err := s.retire(m.Name, name, is); err != nil {
			return err
		}
		there = false
	}
	if source != nil {
		source.merge = there
	}
	return s.fit(m, name, source, there)
}

// source returns the map to copy from: the one that attached programs use, or one that a
// release has not finished copying, or if we have none, any other.
func (s *State) source(name string, is layout.Map, others []carry, there bool) *carry {
	for i, o := range others {
		if s.attached(name, o.was.Version) {
			return &others[i]
		}
	}
	unfinished := s.record.Unfinished && s.attached(name, is.Version)
	if len(others) > 0 && (!there || unfinished) {
		return &others[len(others)-1]
	}
	return nil
}

// retire removes our map, which is stale. If the next release was interrupted, it is merged
// into the new one.
func (s *State) retire(pin, name string, is layout.Map) error {
	if !s.record.Unfinished {
		return os.Remove(s.path(pin))
	}
	aside := pin + asideSuffix
	s.stale = append(s.stale, aside)
	s.merges = append(s.merges, carry{name: name, from: aside, to: pin, was: is, is: is, merge: true, seen: new([]byte)})
	return os.Rename(s.path(pin), s.path(aside))
}

// fit sets the possible size of a map, and plans what to copy to it.
func (s *State) fit(m *ebpf.MapSpec, name string, source *carry, there bool) error {
	pin := m.Name
	if !there && source != nil {
		pin = source.from
	}
	size, err := PinnedSize(s.path(pin))
	if err != nil {
		return err
	}
	if size != 0 && size != m.MaxEntries {
		switch fit := s.Maps[name].Fit; {
		case fit == Keep:
			m.MaxEntries = size
		case fit == Renew && there:
			if err := os.Remove(s.path(pin)); err != nil {
				return err
			}
			source = nil
		case fit == Renew, s.Maps[name].Hashed && !there:
			source = nil
		}
	}
	if source != nil && carries(m.Type) {
		source.to, source.seen = m.Name, new([]byte)
		s.carries = append(s.carries, *source)
	}
	return nil
}

// setAside renames a pin that has our name but does not fit, from a release with an
// unpublished version of the layout.
func (s *State) setAside(m *ebpf.MapSpec) error {
	pinned, err := ebpf.LoadPinnedMap(s.path(m.Name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pinned.Close()
	like := m.Copy()
	like.MaxEntries = pinned.MaxEntries()
	if like.Compatible(pinned) == nil {
		return nil
	}
	return os.Rename(s.path(m.Name), s.path(m.Name+asideSuffix))
}

// asideSuffix is the suffix of pins that were set aside.
const asideSuffix = "-aside"

// others finds the pinned maps of other layouts that ours replaces.
func (s *State) others(name string, is layout.Map) (found []carry, err error) {
	seen := map[string]bool{Pin(name, is.Version): true}
	add := func(was layout.Map, pin string) {
		if seen[pin] || err != nil {
			return
		}
		seen[pin] = true
		var there bool
		if there, err = exists(s.path(pin)); there {
			found = append(found, carry{name: name, from: pin, was: was, is: is})
		}
	}
	for _, set := range s.record.Sets {
		if was, ok := set.Maps[name]; ok {
			add(was, Pin(name, was.Version))
			if !was.Fits(is) {
				add(was, Pin(name, was.Version)+asideSuffix)
			}
		}
	}
	for _, was := range s.history[name] {
		add(was, Pin(name, was.Version))
	}
	add(layout.Map{}, Pin(name, is.Version)+asideSuffix) // with an unknown layout
	return found, err
}

// attached reports whether an attached program belongs to a release that uses this version
// of a map.
func (s *State) attached(name string, version int) bool {
	for _, set := range s.record.Sets {
		if was, ok := set.Maps[name]; ok && was.Version == version && set.attached(s.Attached) {
			return true
		}
	}
	// A program of a release without records.
	return version <= 1 && slices.ContainsFunc(s.Attached, func(id ebpf.ProgramID) bool { return !s.record.knows(id) })
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Replace records that these programs are about to be attached, possibly replacing some of
// those that stay attached elsewhere.
func (s *State) Replace(programs ...*ebpf.Program) error {
	own, err := newSet(programs, s.own)
	if err != nil {
		return err
	}
	s.programs = own.Programs
	var sets []set
	for _, old := range s.record.Sets {
		switch {
		case reflect.DeepEqual(old.Maps, own.Maps):
			own.Programs = slices.Concat(own.Programs, old.Programs) // attached until they are replaced
		case s.record.Unfinished || old.attached(s.Attached):
			sets = append(sets, old)
		}
	}
	s.record = record{Sets: append(sets, own), Unfinished: true}
	return s.record.write(s.Folder)
}

// Old passes the entries of an array that have changed since it was copied, in this
// release's layout, to f, which must not retain them.
func (s *State) Old(name string, f func(value []byte) error) error {
	for _, c := range s.carries {
		if c.name == name {
			return s.each(c, f)
		}
	}
	return nil
}

// Settle must be called when no other release's program is attached any more: it copies
// what they have written since Carry, and removes the unused maps.
func (s *State) Settle() error {
	if len(s.record.Sets) == 0 {
		return errors.New("no programs are on record")
	}
	errs := []error{s.carryAgain()}
	for _, set := range s.record.Sets[:len(s.record.Sets)-1] {
		for name, m := range set.Maps {
			if _, ours := s.own[name]; !ours {
				s.stale = append(s.stale, Pin(name, m.Version))
			}
		}
	}
	for _, name := range s.names {
		if _, kept := s.own[name]; !kept {
			s.stale = append(s.stale, name) // earlier releases pinned it
		}
	}
	for _, pin := range s.stale {
		if err := os.Remove(s.path(pin)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	own := s.record.Sets[len(s.record.Sets)-1]
	own.Programs = s.programs
	s.record = record{Sets: []set{own}}
	s.carries, s.merges, s.stale = nil, nil, nil
	return errors.Join(append(errs, s.record.write(s.Folder))...)
}
