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

// Kept says of a map that it outlives its agent, which version of its layout this
// release has, and what becomes of it in another size.
type Kept struct {
	Fit Fit
	// Written says that programs write it, not the agent alone: what they have written
	// since it was copied is copied again.
	Written bool
	// Hashed says that where entries stand depends on how many there are: in another
	// size they cannot be copied.
	Hashed bool
	// Version counts the layouts that the map has had; 0 stands for 1.
	Version int
	// Enums are enums of the object whose values stand in numbers of the entries.
	// One that changes is a change of the layout as far as tests can see.
	Enums []string
	// Seal puts right what an entry says of its own bytes, such as a checksum, after
	// it was copied from another layout; nil where it says nothing.
	Seal func(key, value []byte)
}

// KeptMaps are a component's, by their names in C.
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
			one.Key, one.Value = nil, nil // nobody reads another release's
		}
		all[name] = one
	}
	return all, nil
}

// Pin is under which name a version of a map is pinned: the first by its name in C,
// as releases do that knew of no versions.
func Pin(name string, version int) string {
	if version <= 1 {
		return name
	}
	return name + "-" + strconv.Itoa(version)
}

// Pin is under which name this release pins a map.
func (k KeptMaps) Pin(name string) string { return Pin(name, k[name].Version) }

// Source says what a State begins with.
type Source struct {
	// Folder is where the maps are pinned. Its lock is the caller's business.
	Folder string
	// Maps are those that outlive the agent.
	Maps KeptMaps
	// History has the layouts of releases that left none on record, as
	// layout.History.Format writes it.
	History []byte
	// Attached are the programs that forward now.
	Attached []ebpf.ProgramID
}

// State is the pinned maps of a component while one release takes over from
// another, older or newer, whose maps may have other layouts:
//
//	OpenState    sets the maps of the object to be pinned, next to those of others
//	             that a release with other layouts has left
//	Carry        copies what those hold, once the programs are loaded; again, what has
//	             changed since
//	Replace      puts on record that they are about to be attached
//	Settle       copies what has come meanwhile, and takes away what nobody uses
//
// What fails or ends in between leaves a folder that either release can open.
type State struct {
	Source
	own     layout.Layouts
	history layout.History
	record  record
	names   []string // all maps of the object
	carries []carry
	merges  []carry  // after those
	stale   []string // pins that nobody uses any more
	// programs are those that Replace was given.
	programs []ebpf.ProgramID
}

// carry is a map whose contents come from one of another layout.
type carry struct {
	name, from, to string // pins
	was, is        layout.Map
	// merge says that both are in use.
	merge bool
	// seen are the entries of an array as they were last copied; done says that it was.
	seen *[]byte
	done bool
}

// OpenState decides which pinned maps are used, and which are copied.
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
		if !strings.HasPrefix(name, ".") { // which is never pinned
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

// openMap decides about one map.
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
		// Another release has been at work since: ours is out of date, but for what
		// that one has not copied yet.
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

// source gives the map to copy from: what attached programs use, or what a release
// has not finished copying, or where nothing of ours is there whatever there is.
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

// retire takes our map away, which is out of date. Where its successor was cut short
// it is merged into the new one.
func (s *State) retire(pin, name string, is layout.Map) error {
	if !s.record.Unfinished {
		return os.Remove(s.path(pin))
	}
	aside := pin + asideSuffix
	s.stale = append(s.stale, aside)
	s.merges = append(s.merges, carry{name: name, from: aside, to: pin, was: is, is: is, merge: true, seen: new([]byte)})
	return os.Rename(s.path(pin), s.path(aside))
}

// fit gives a map the size that it can have, and plans what is copied into it.
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

// setAside gives a pin another name that has the name of ours and does not fit: a
// release whose version of the layout was never published.
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

// asideSuffix ends the names of pins that were set aside.
const asideSuffix = "-aside"

// others finds the pinned maps of other layouts that one of ours is in place of.
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
	add(layout.Map{}, Pin(name, is.Version)+asideSuffix) // of which nothing is known
	return found, err
}

// attached says that a program is attached whose release uses this version of a map.
func (s *State) attached(name string, version int) bool {
	for _, set := range s.record.Sets {
		if was, ok := set.Maps[name]; ok && was.Version == version && set.attached(s.Attached) {
			return true
		}
	}
	// A program of a release that keeps no record.
	return version <= 1 && slices.ContainsFunc(s.Attached, func(id ebpf.ProgramID) bool { return !s.record.knows(id) })
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Replace puts on record that these programs are about to be attached, some maybe
// in the place of others that stay attached elsewhere.
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
			own.Programs = slices.Concat(own.Programs, old.Programs) // which are attached until they are replaced
		case s.record.Unfinished || old.attached(s.Attached):
			sets = append(sets, old)
		}
	}
	s.record = record{Sets: append(sets, own), Unfinished: true}
	return s.record.write(s.Folder)
}

// Old gives the entries of an array that have changed since it was copied, as they lie
// in this release's layout, to f, which is to keep none.
func (s *State) Old(name string, f func(value []byte) error) error {
	for _, c := range s.carries {
		if c.name == name {
			return s.each(c, f)
		}
	}
	return nil
}

// Settle is for when no other release's program is attached any more: it copies what
// those have written since Carry, and removes the maps that nobody uses.
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
