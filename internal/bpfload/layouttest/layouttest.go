// Package layouttest compares the layouts of pinned maps with the history that is committed
// next to their loader, so that none changes without a new version. It also creates layouts
// as another release may have them.
package layouttest

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfload/layout"
)

var update = flag.Bool("update-layouts", false, "write the layouts of maps into layouts.json")

// Check fails the test if a map's layout differs from the file's for its version. With
// -update-layouts it writes the file.
func Check(t *testing.T, load func() (*ebpf.CollectionSpec, error), kept bpfload.KeptMaps, file string) {
	t.Helper()
	spec, err := load()
	if err != nil {
		t.Fatal(err)
	}
	now, err := kept.Layouts(spec)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range kept {
		m := now[name]
		if err := m.AddEnums(spec.Types, k.Enums...); err != nil {
			t.Fatalf("map %s: %v", name, err)
		}
		now[name] = m
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	history, err := layout.ParseHistory(text)
	if err != nil {
		t.Fatal(err)
	}
	if !*update {
		if err := history.Check(now); err != nil {
			t.Error(err)
		}
		return
	}
	history.Update(now)
	written, err := history.Format()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(written, text) {
		return
	}
	if err := os.WriteFile(file, written, 0o644); err != nil {
		t.Fatal(err)
	}
}

// nextVersion is the version of layouts that no release has.
const nextVersion = 1000

// Next adds a field to maps of an object, as another release may have it, and changes the
// version of the kept maps. The object's programs work with them unchanged.
func Next(t testing.TB, spec *ebpf.CollectionSpec, kept bpfload.KeptMaps, names ...string) bpfload.KeptMaps {
	t.Helper()
	next := maps.Clone(kept)
	for _, name := range names {
		m := spec.Maps[name]
		size := (m.ValueSize + 7) / 8 * 8
		field := btf.Member{Name: "next_layout", Type: &btf.Int{Name: "__u64", Size: 8}, Offset: btf.Bits(8 * size)}
		if of, ok := btf.UnderlyingType(m.Value).(*btf.Struct); ok {
			m.Value = &btf.Struct{Name: of.Name, Size: size + 8, Members: append(slices.Clone(of.Members), field)}
		} else {
			t.Fatalf("the entries of map %s are no structs", name)
		}
		m.ValueSize = size + 8
		k := next[name]
		k.Version = nextVersion
		next[name] = k
	}
	return next
}
