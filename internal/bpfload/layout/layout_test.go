package layout

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

func parse(t *testing.T, lines ...string) (fields []Field) {
	t.Helper()
	for _, line := range lines {
		var f Field
		if err := f.UnmarshalText([]byte(line)); err != nil {
			t.Fatal(err)
		}
		fields = append(fields, f)
	}
	return fields
}

// TestConvert converts entries of one layout to another.
func TestConvert(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to []string
		in, out  []byte
		unknown  bool
	}{
		{name: "the same", from: []string{"0+4 a", "4+4 b"}, to: []string{"0+4 a", "4+4 b"}, in: []byte{1, 2, 3, 4, 5, 6, 7, 8}, out: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{name: "another order", from: []string{"0+2 a", "2+2 b"}, to: []string{"0+2 b", "2+2 a"}, in: []byte{1, 2, 3, 4}, out: []byte{3, 4, 1, 2}},
		{name: "a field more", from: []string{"0+2 a", "2+2 b"}, to: []string{"0+2 a", "2+2 new", "4+2 b"}, in: []byte{1, 2, 3, 4}, out: []byte{1, 2, 0, 0, 3, 4}},
		{name: "a field less", from: []string{"0+2 a", "2+2 gone", "4+2 b"}, to: []string{"0+2 a", "2+2 b"}, in: []byte{1, 2, 9, 9, 3, 4}, out: []byte{1, 2, 3, 4}},
		{name: "a wider number", from: []string{"0+2 a"}, to: []string{"0+4 a"}, in: []byte{1, 2}, out: []byte{1, 2, 0, 0}},
		{name: "no struct", from: []string{"0+4"}, to: []string{"0+8"}, in: []byte{1, 2, 3, 4}, out: []byte{1, 2, 3, 4, 0, 0, 0, 0}},
		{name: "elements apart", from: []string{"0+1 way[2*2].a", "1+1 way[2*2].b"}, to: []string{"0+1 way[3*3].b", "1+1 way[3*3].new", "2+1 way[3*3].a"},
			in: []byte{1, 2, 3, 4}, out: []byte{2, 0, 1, 4, 0, 3, 0, 0, 0}},
		{name: "arrays in arrays", from: []string{"0+1 x[2*4].y[2*2].a"}, to: []string{"1+1 x[2*4].y[2*2].a"},
			in: []byte{1, 0, 2, 0, 3, 0, 4, 0}, out: []byte{0, 1, 0, 2, 0, 3, 0, 4}},
		{name: "another number of the same name", from: []string{"0+1 e {A=1 B=2 C=3}"}, to: []string{"0+1 e {A=1 NEW=2 B=3 C=4}"}, in: []byte{2}, out: []byte{3}},
		{name: "a name that is not known", from: []string{"0+1 e {A=1 NEW=2 B=3 C=4}"}, to: []string{"0+1 e {A=1 B=2 C=3}"}, in: []byte{2}, unknown: true},
		{name: "an unused entry", from: []string{"0+1 e {A=1 NEW=2 B=3 C=4}"}, to: []string{"0+1 e {A=1 B=2 C=3}"}, in: []byte{0}, out: []byte{0}},
		{name: "flags", from: []string{"0+1 e {A=1 NEW=2 B=4 C=8}"}, to: []string{"0+1 e {A=1 B=2 C=4}"}, in: []byte{1 | 2 | 8}, out: []byte{1 | 4}},
		{name: "values that are only added", from: []string{"0+1 e {A=1 B=2}"}, to: []string{"0+1 e {A=1 B=2 C=3}"}, in: []byte{2}, out: []byte{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			size := uint32(len(c.out))
			if c.unknown {
				size = 1
			}
			conversion, err := NewConversion(parse(t, c.from...), uint32(len(c.in)), parse(t, c.to...), size)
			if err != nil {
				t.Fatal(err)
			}
			out := make([]byte, size)
			known := conversion.Convert(out, c.in)
			if known == c.unknown || known && !bytes.Equal(out, c.out) {
				t.Errorf("gives %v, known %v; want %v, %v", out, known, c.out, !c.unknown)
			}
		})
	}
	for what, f := range map[string]string{
		"an enum of another size": "0+1 e {A=1}", "a field outside of the entry": "4+4 e", "an array that is longer than the entry": "0+4 e[2*4]",
		"too many elements": "0+0 e[65536*0].f[65536*0]",
	} {
		if _, err := NewConversion(parse(t, f), 4, parse(t, "0+4 e {A=2}"), 4); err == nil {
			t.Errorf("%s is converted", what)
		}
	}
}

// described is a map as an object may declare it.
func described() *ebpf.MapSpec {
	u32 := &btf.Int{Name: "u32", Size: 4}
	kind := &btf.Enum{Name: "kind", Size: 4, Values: []btf.EnumValue{{Name: "KIND_B", Value: 2}, {Name: "KIND_A", Value: 1}}}
	inner := &btf.Struct{Name: "inner", Size: 8, Members: []btf.Member{{Name: "bytes", Type: &btf.Array{Type: u32, Nelems: 1}}, {Name: "kind", Type: kind, Offset: 32}}}
	value := &btf.Struct{Name: "value", Size: 24, Members: []btf.Member{
		{Name: "id", Type: &btf.Typedef{Name: "id_t", Type: u32}},
		{Name: "row", Type: &btf.Array{Type: inner, Nelems: 2}, Offset: 32},
		{Name: "last", Type: &btf.Union{Name: "u", Size: 4, Members: []btf.Member{{Name: "x", Type: u32}}}, Offset: 160},
	}}
	return &ebpf.MapSpec{Name: "map", Type: ebpf.Hash, KeySize: 4, ValueSize: 24, MaxEntries: 1, Key: u32, Value: value}
}

func TestDescribe(t *testing.T) {
	m, err := Describe(described(), 0, "kept")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"type":"Hash","keySize":4,"valueSize":24,"entries":"kept","key":["0+4"],` +
		`"value":["0+4 id","4+4 row[2*8].bytes","8+4 row[2*8].kind {KIND_A=1 KIND_B=2}","20+4 last"]}`
	if string(text) != want {
		t.Errorf("gives\n%s\nwant\n%s", text, want)
	}
	var back Map
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("reads back as %+v, %v; want %+v", back, err, m)
	}
	bits := described()
	bits.Value.(*btf.Struct).Members[0].BitfieldSize = 3
	if _, err := Describe(bits, 1, ""); err == nil || !strings.Contains(err.Error(), "bit fields") {
		t.Errorf("bit fields: %v", err)
	}
}

// TestHistory changes a layout in ways that require a new version, and in ways that do not.
func TestHistory(t *testing.T) {
	layouts := func(version int, change func(*ebpf.MapSpec)) Layouts {
		spec := described()
		if change != nil {
			change(spec)
		}
		m, err := Describe(spec, version, "kept")
		if err != nil {
			t.Fatal(err)
		}
		return Layouts{"map": m}
	}
	h := History{}
	h.Update(layouts(1, nil))
	larger := func(m *ebpf.MapSpec) { m.ValueSize = 32 }
	for name, c := range map[string]struct {
		now  Layouts
		says string
	}{
		"nothing":                    {layouts(1, nil), ""},
		"a larger value":             {layouts(1, larger), "without a new version"},
		"a flag":                     {layouts(1, func(m *ebpf.MapSpec) { m.Flags = 1 }), "without a new version"},
		"a field of another place":   {layouts(1, func(m *ebpf.MapSpec) { m.Value.(*btf.Struct).Members[2].Offset = 128 }), "without a new version"},
		"a version that is not kept": {layouts(2, larger), "-update-layouts"},
		"no such map any more":       {Layouts{}, "pinned no more"},
	} {
		err := h.Check(c.now)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
	h.Update(layouts(2, larger))
	if err := h.Check(layouts(2, larger)); err != nil {
		t.Error(err)
	}
	if first, there := h.Find("map", 1); !there || first.ValueSize != 24 {
		t.Errorf("version 1 is %+v, %v", first, there)
	}
	text, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseHistory(text); err != nil || !reflect.DeepEqual(back, h) {
		t.Errorf("reads back as %+v, %v", back, err)
	}
	names := layouts(1, nil)
	other := layouts(1, func(m *ebpf.MapSpec) { m.Value.(*btf.Struct).Members[0].Name = "number" })
	if !names["map"].Fits(other["map"]) || names["map"].Fits(layouts(1, larger)["map"]) {
		t.Error("names alone decide whether a layout fits")
	}
}

// FuzzField parses fields as another release may have written them.
func FuzzField(f *testing.F) {
	for _, seed := range []string{"0+4", "24+8 way[8*16].tag", "0+1 e {A=1 B=2}", "0+1 x[2*4].y[2*2].a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzlimit.Time(t)
		var a, b Field
		if a.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, err := a.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.UnmarshalText(written); err != nil {
			t.Fatalf("%q, from %q: %v", written, text, err)
		}
		again, err := b.MarshalText()
		if err != nil || !bytes.Equal(again, written) {
			t.Fatalf("%q became %q, %v", written, again, err)
		}
	})
}
