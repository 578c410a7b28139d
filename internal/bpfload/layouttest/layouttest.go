// Package layouttest compares the layouts of pinned maps with the history that is
// committed next to their loader, so that none changes without a new version.
package layouttest

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/bpfload/layout"
)

var update = flag.Bool("update-layouts", false, "write the layouts of maps into layouts.json")

// Check fails the test where a map's layout is not the one that file has for its
// version. With -update-layouts it writes the file.
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
