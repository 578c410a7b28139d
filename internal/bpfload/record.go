package bpfload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/bpfload/layout"
)

// record says which release uses which maps of a directory, and the layout of their
// entries, so that any other release can read them. It is pinned next to them, as the only
// entry of an array.
type record struct {
	// Sets are the releases whose programs are attached: two during a takeover.
	Sets []set `json:"sets"`
	// Unfinished means that the last of them has not finished copying from the others.
	Unfinished bool `json:"unfinished,omitempty"`
}

// set is what one release uses.
type set struct {
	Programs []ebpf.ProgramID `json:"programs"`
	Maps     layout.Layouts   `json:"maps"`
}

// Pin names of the record, and of a record being written.
const (
	recordPin    = "layouts"
	newRecordPin = "layouts-new"
)

func newSet(programs []*ebpf.Program, maps layout.Layouts) (s set, err error) {
	s.Maps = maps
	for _, p := range programs {
		if p == nil {
			continue // an optional program that the kernel rejects
		}
		info, err := p.Info()
		if err != nil {
			return s, err
		}
		id, _ := info.ID()
		s.Programs = append(s.Programs, id)
	}
	return s, nil
}

// attached reports whether one of the set's programs is attached.
func (s set) attached(programs []ebpf.ProgramID) bool {
	return slices.ContainsFunc(s.Programs, func(id ebpf.ProgramID) bool { return slices.Contains(programs, id) })
}

// knows reports whether a program belongs to one of the sets.
func (r record) knows(id ebpf.ProgramID) bool {
	return slices.ContainsFunc(r.Sets, func(s set) bool { return slices.Contains(s.Programs, id) })
}

// readRecord reads the record; it is empty if no record exists.
func readRecord(folder string) (r record, err error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(folder, recordPin), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("record of layouts: %w", err)
	}
	defer m.Close()
	text, err := m.LookupBytes(uint32(0))
	if err != nil {
		return r, fmt.Errorf("record of layouts: %w", err)
	}
	decoder := json.NewDecoder(trimmed(text))
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("record of layouts %s: %w", filepath.Join(folder, recordPin), err)
	}
	return r, nil
}

// write replaces the record atomically.
func (r record) write(folder string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: recordPin, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(text)), MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("record of layouts: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), text); err != nil {
		return fmt.Errorf("record of layouts: %w", err)
	}
	next := filepath.Join(folder, newRecordPin)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(m.Pin(next), os.Rename(next, filepath.Join(folder, recordPin))); err != nil {
		return fmt.Errorf("record of layouts: %w", err)
	}
	return nil
}

// Attached returns the programs of the links pinned in a directory under names with a
// prefix.
func Attached(dir *bpffs.Dir, prefix string) (programs []ebpf.ProgramID, err error) {
	pins, err := dir.Names(prefix)
	if err != nil {
		return nil, err
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(dir.Path(pin), nil)
		if err != nil {
			return nil, fmt.Errorf("pinned link %s: %w", pin, err)
		}
		info, err := l.Info()
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, fmt.Errorf("pinned link %s: %w", pin, err)
		}
		programs = append(programs, info.Program)
	}
	return programs, nil
}
