package bpfload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpfload/layout"
)

func trimmed(text []byte) io.Reader { return bytes.NewReader(bytes.TrimRight(text, "\x00")) }

// carries reports whether the contents of such a map can be copied. Per-CPU counters start
// again, and what only programs can read is lost.
func carries(t ebpf.MapType) bool {
	switch t {
	case ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie, ebpf.Array, ebpf.ArrayOfMaps, ebpf.HashOfMaps:
		return true
	}
	return false
}

// isArray reports whether all entries exist from the start.
func isArray(t ebpf.MapType) bool { return t == ebpf.Array || t == ebpf.ArrayOfMaps }

// Carried are maps whose contents were copied from another layout, by C name, with the
// number of entries that are meaningless to this release.
type Carried map[string]int

// Carry copies the contents of maps with other layouts; called again, it copies what
// programs have written since. The programs that use our maps must not be attached yet,
// except after an interrupted earlier attempt.
func (s *State) Carry() (Carried, error) {
	carried := Carried{}
	var errs []error
	for i := range s.carries {
		c := &s.carries[i]
		if c.done && !s.Maps[c.name].Written {
			continue
		}
		flag := ebpf.UpdateAny
		if c.merge {
			flag = ebpf.UpdateNoExist
		}
		unknown, err := s.carryOne(*c, flag)
		c.done = err == nil
		carried[c.name] = unknown
		if err != nil {
			errs = append(errs, fmt.Errorf("carry over map %s from version %d to %d: %w", c.name, c.was.Version, c.is.Version, err))
		}
	}
	return carried, errors.Join(errs...)
}

// carryAgain copies what other programs have added since. In an array, both may have
// changed an entry: ours takes precedence.
func (s *State) carryAgain() error {
	var errs []error
	for _, c := range s.carries {
		if !s.Maps[c.name].Written {
			continue
		}
		if _, err := s.carryOne(c, ebpf.UpdateNoExist); err != nil {
			errs = append(errs, fmt.Errorf("carry over map %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *State) carryOne(c carry, flag ebpf.MapUpdateFlags) (unknown int, err error) {
	if c.was.Type == "" {
		return 0, errors.New("nothing is known of its layout")
	}
	from, err := ebpf.LoadPinnedMap(s.path(c.from), nil)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := ebpf.LoadPinnedMap(s.path(c.to), nil)
	if err != nil {
		return 0, err
	}
	defer to.Close()
	switch {
	case isArray(from.Type()) != isArray(to.Type()):
		return 0, fmt.Errorf("a %s has become a %s", from.Type(), to.Type())
	case isArray(to.Type()) && flag == ebpf.UpdateNoExist:
		return 0, nil
	case c.is.Inner != nil:
		if c.was.Inner == nil || !c.was.Inner.Fits(*c.is.Inner) {
			return 0, errors.New("the maps in it have another layout")
		}
		return 0, copyMaps(to, from, flag)
	}
	key, err := layout.NewConversion(c.was.Key, from.KeySize(), c.is.Key, to.KeySize())
	if err != nil {
		return 0, err
	}
	value, err := layout.NewConversion(c.was.Value, from.ValueSize(), c.is.Value, to.ValueSize())
	if err != nil {
		return 0, err
	}
	if isArray(to.Type()) {
		return copyArray(to, from, value, c.seen)
	}
	return copyHash(to, from, key, value, flag, s.Maps[c.name].Seal)
}

// copyMaps copies references to inner maps into another map of maps.
func copyMaps(to, from *ebpf.Map, flag ebpf.MapUpdateFlags) error {
	var key []byte
	var inner *ebpf.Map
	it := from.Iterate()
	for it.Next(&key, &inner) {
		if inner == nil {
			continue
		}
		err := to.Update(key, inner, flag)
		if err = errors.Join(ignoreExist(err), inner.Close()); err != nil {
			return err
		}
		inner = nil
	}
	return it.Err()
}

func ignoreExist(err error) error {
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	return err
}

// copyHash copies entry by entry, because there are usually few.
func copyHash(to, from *ebpf.Map, key, value layout.Conversion, flag ebpf.MapUpdateFlags, seal func(key, value []byte)) (unknown int, err error) {
	var k, v []byte
	newKey, newValue := make([]byte, to.KeySize()), make([]byte, to.ValueSize())
	it := from.Iterate()
	for it.Next(&k, &v) {
		clear(newKey)
		clear(newValue)
		if !key.Convert(newKey, k) || !value.Convert(newValue, v) {
			unknown++
			continue
		}
		if seal != nil {
			seal(newKey, newValue)
		}
		if err := ignoreExist(to.Update(newKey, newValue, flag)); err != nil {
			return unknown, err
		}
	}
	return unknown, it.Err()
}

// atOnce is the number of entries per batch operation.
const atOnce = 4096

// copyArray copies as many entries as both have; of those copied before, only the changed
// ones.
func copyArray(to, from *ebpf.Map, value layout.Conversion, seen *[]byte) (unknown int, err error) {
	err = readArray(from, to.ValueSize(), value, seen, func(keys []uint32, out rows, strange int) error {
		unknown += strange
		n := len(keys)
		for n > 0 && keys[n-1] >= to.MaxEntries() {
			if n--; !zero(out.row(n)) {
				return fmt.Errorf("entry %d is in use, and there is room for %d: start once with the sizes that the other release had", keys[n], to.MaxEntries())
			}
		}
		if n == 0 {
			return nil
		}
		_, err := to.BatchUpdate(keys[:n], out.first(n), nil)
		return err
	})
	return unknown, err
}

// readArray passes the entries of an array that have changed since they were last seen to
// f, converted and in batches, with the number of meaningless ones.
func readArray(from *ebpf.Map, size uint32, value layout.Conversion, seen *[]byte, f func(keys []uint32, out rows, strange int) error) error {
	var cursor ebpf.MapBatchCursor
	in, out := newRows(from.ValueSize()), newRows(size)
	all, changed := make([]uint32, atOnce), make([]uint32, 0, atOnce)
	first := len(*seen) == 0
	for done := false; !done; {
		n, err := from.BatchLookup(&cursor, all, in.first(atOnce), nil)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			done, err = true, nil
		}
		if err != nil {
			return err
		}
		strange := 0
		changed = changed[:0]
		for i, key := range all[:n] {
			if first {
				*seen = append(*seen, in.row(i)...)
			} else if was := (*seen)[int(key)*in.size:][:in.size]; bytes.Equal(was, in.row(i)) {
				continue
			} else {
				copy(was, in.row(i))
			}
			row := out.row(len(changed))
			clear(row)
			if !value.Convert(row, in.row(i)) {
				strange++
				clear(row)
			}
			changed = append(changed, key)
		}
		if err := f(changed, out, strange); err != nil {
			return err
		}
	}
	return nil
}

// each passes an array's changed entries to f, converted.
func (s *State) each(c carry, f func(value []byte) error) error {
	from, err := ebpf.LoadPinnedMap(s.path(c.from), nil)
	if err != nil {
		return err
	}
	defer from.Close()
	value, err := layout.NewConversion(c.was.Value, from.ValueSize(), c.is.Value, c.is.ValueSize)
	if err != nil {
		return err
	}
	return readArray(from, c.is.ValueSize, value, c.seen, func(keys []uint32, out rows, _ int) error {
		for i := range keys {
			if err := f(out.row(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// rows are entries of a dynamic size, in the form that the library requires.
type rows struct {
	slice reflect.Value // [][size]byte
	bytes []byte
	size  int
}

func newRows(size uint32) rows {
	slice := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]())), atOnce, atOnce)
	return rows{slice, unsafe.Slice((*byte)(slice.UnsafePointer()), atOnce*int(size)), int(size)}
}

func (r rows) row(i int) []byte { return r.bytes[i*r.size : (i+1)*r.size] }

// first returns the first n rows in that form.
func (r rows) first(n int) any { return r.slice.Slice(0, n).Interface() }

func zero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }
