package layout

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Describe returns the layout of a map that an object declares.
func Describe(spec *ebpf.MapSpec, version int, entries string) (Map, error) {
	m := Map{
		Version: max(version, 1), Type: spec.Type.String(), Flags: spec.Flags, KeySize: spec.KeySize, ValueSize: spec.ValueSize, Entries: entries,
	}
	if spec.InnerMap != nil {
		inner, err := Describe(spec.InnerMap, 1, fmt.Sprint(spec.InnerMap.MaxEntries))
		if err != nil {
			return m, fmt.Errorf("inner map: %w", err)
		}
		m.Inner = &inner
		m.Key, err = fields(spec.Key, spec.KeySize)
		return m, err
	}
	var err error
	if m.Key, err = fields(spec.Key, spec.KeySize); err != nil {
		return m, fmt.Errorf("map %s: key: %w", spec.Name, err)
	}
	if m.Value, err = fields(spec.Value, spec.ValueSize); err != nil {
		return m, fmt.Errorf("map %s: value: %w", spec.Name, err)
	}
	return m, nil
}

// fields lists the fields of a type. If the object has no type, there is one field with all
// bytes.
func fields(t btf.Type, size uint32) ([]Field, error) {
	if _, void := t.(*btf.Void); t == nil || void {
		if size == 0 {
			return nil, nil
		}
		return []Field{{Size: size}}, nil
	}
	var list []Field
	err := walk(&list, Field{}, t)
	return list, err
}

// walk adds the fields of a type at a given position.
func walk(list *[]Field, at Field, t btf.Type) error {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		for _, m := range t.Members {
			inner := at
			inner.Name = join(at.Name, m.Name)
			inner.Offset += m.Offset.Bytes()
			if m.BitfieldSize != 0 {
				return fmt.Errorf("field %s: a layout has no bit fields: use masks", inner.Name)
			}
			if err := walk(list, inner, m.Type); err != nil {
				return err
			}
		}
		return nil
	case *btf.Array:
		if _, isStruct := btf.UnderlyingType(t.Type).(*btf.Struct); isStruct {
			stride, err := btf.Sizeof(t.Type)
			if err != nil {
				return err
			}
			inner := at
			inner.Name += "[]"
			inner.Repeat = append(append([]Repeat(nil), at.Repeat...), Repeat{Count: t.Nelems, Stride: uint32(stride)})
			return walk(list, inner, t.Type)
		}
	case *btf.Enum:
		at.Values = valuesOf(t)
	}
	size, err := btf.Sizeof(t)
	at.Size = uint32(size)
	*list = append(*list, at)
	return err
}

func join(outer, name string) string {
	if outer == "" || name == "" {
		return outer + name
	}
	return outer + "." + name
}

func valuesOf(t *btf.Enum) map[string]uint64 {
	values := map[string]uint64{}
	for _, v := range t.Values {
		values[v.Name] = v.Value
	}
	return values
}

// AddEnums adds enums of an object to a layout, only for golden files: numbers without an
// enum type are not converted.
func (m *Map) AddEnums(types *btf.Spec, names ...string) error {
	for _, name := range names {
		var enum *btf.Enum
		if err := types.TypeByName(name, &enum); err != nil {
			return fmt.Errorf("enum %s: %w", name, err)
		}
		if m.Enums == nil {
			m.Enums = map[string]string{}
		}
		m.Enums[name] = valuesText(valuesOf(enum))
	}
	return nil
}
