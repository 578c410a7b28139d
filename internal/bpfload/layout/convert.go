package layout

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Conversion copies an entry of one layout into one of another, field by field with the
// same name. Other fields stay zero.
type Conversion struct {
	moves []move
	enums []enum
}

// move is a range of bytes that both have.
type move struct{ from, to, n uint32 }

// enum is a number whose names have different values.
type enum struct {
	from, to, size uint32
	values         map[uint64]uint64
	flags          bool // several values combined
}

// Convert fills out, which must be zero, from in. known is false if in has an enum value
// that the other layout does not have: such an entry is meaningless there.
func (c Conversion) Convert(out, in []byte) (known bool) {
	for _, m := range c.moves {
		copy(out[m.to:m.to+m.n], in[m.from:m.from+m.n])
	}
	for _, e := range c.enums {
		value, known := e.translate(number(in[e.from : e.from+e.size]))
		if !known {
			return false
		}
		put(out[e.to:], e.size, value)
	}
	return true
}

// translate returns a number's value in the other layout. Flags that the other does not
// have are dropped.
func (e enum) translate(value uint64) (other uint64, known bool) {
	if !e.flags {
		other, known = e.values[value]
		return other, known || value == 0 // in an unused entry
	}
	for bit := uint64(1); bit != 0 && bit <= value; bit <<= 1 {
		if value&bit != 0 {
			other |= e.values[bit]
		}
	}
	return other, true
}

// NewConversion returns the conversion from entries of fromSize bytes with the fields from,
// to entries of toSize bytes with the fields to.
func NewConversion(from []Field, fromSize uint32, to []Field, toSize uint32) (Conversion, error) {
	var c Conversion
	there := map[string]Field{}
	theirs, err := expand(from, fromSize)
	if err != nil {
		return c, err
	}
	ours, err := expand(to, toSize)
	if err != nil {
		return c, err
	}
	for _, f := range theirs {
		there[f.Name] = f
	}
	for _, t := range ours {
		f, ok := there[t.Name]
		if !ok {
			continue
		}
		if n := min(f.Size, t.Size); len(t.Values) == 0 || len(f.Values) == 0 || sameValues(f, t) {
			c.moves = append(c.moves, move{f.Offset, t.Offset, n})
			continue
		}
		if f.Size != t.Size {
			return c, fmt.Errorf("field %s: an enum of %d bytes has become one of %d", t.Name, f.Size, t.Size)
		}
		c.enums = append(c.enums, enum{f.Offset, t.Offset, t.Size, sharedValues(f.Values, t.Values), isFlags(f.Values)})
	}
	c.moves = merge(c.moves)
	return c, nil
}

// mostFields limits the expansion of an entry's description.
const mostFields = 1 << 16

// expand creates a field for each element of arrays, and rejects fields outside of an
// entry.
func expand(fields []Field, size uint32) (all []Field, err error) {
	for _, f := range fields {
		of := []Field{f}
		of[0].Repeat = nil
		for depth, r := range f.Repeat {
			if uint64(len(of))*uint64(r.Count) > mostFields {
				return nil, fmt.Errorf("field %s: more than %d elements", f.Name, mostFields)
			}
			var next []Field
			for _, f := range of {
				for i := range r.Count {
					e := f
					e.Name = fmt.Sprintf("%s#%d.%d", f.Name, depth, i)
					e.Offset += i * r.Stride
					next = append(next, e)
				}
			}
			of = next
		}
		all = append(all, of...)
	}
	for _, f := range all {
		if uint64(f.Offset)+uint64(f.Size) > uint64(size) {
			return nil, fmt.Errorf("field %s: bytes %d to %d of %d", f.Name, f.Offset, f.Offset+f.Size, size)
		}
	}
	return all, nil
}

// sameValues reports whether all of a's values have the same names in b.
func sameValues(a, b Field) bool {
	for name, value := range a.Values {
		if other, ok := b.Values[name]; !ok || other != value {
			return false
		}
	}
	return true
}

// sharedValues maps the values in from to those in to, for names in both.
func sharedValues(from, to map[string]uint64) map[uint64]uint64 {
	values := map[uint64]uint64{}
	for name, value := range from {
		if now, ok := to[name]; ok {
			values[value] = now
		}
	}
	return values
}

// isFlags reports whether an enum consists of flags: more than two nonzero values, all of
// them powers of two.
func isFlags(values map[string]uint64) bool {
	bits := 0
	for _, v := range values {
		if v&(v-1) != 0 {
			return false
		}
		if v != 0 {
			bits++
		}
	}
	return bits > 2
}

// merge merges ranges that are adjacent on both sides.
func merge(moves []move) (merged []move) {
	slices.SortFunc(moves, func(a, b move) int { return int(a.to) - int(b.to) })
	for _, m := range moves {
		last := len(merged) - 1
		if last >= 0 && merged[last].from+merged[last].n == m.from && merged[last].to+merged[last].n == m.to {
			merged[last].n += m.n
			continue
		}
		merged = append(merged, m)
	}
	return merged
}

func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func put(b []byte, size uint32, value uint64) {
	switch size {
	case 1:
		b[0] = byte(value)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(value))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(value))
	default:
		binary.NativeEndian.PutUint64(b, value)
	}
}
