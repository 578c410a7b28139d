package bpfload_test

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func spec(sizes map[string]uint32) *ebpf.CollectionSpec {
	s := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{}}
	for name, size := range sizes {
		s.Maps[name] = &ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: size}
	}
	return s
}

// pinFolder creates a directory for pins.
func pinFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/sys/fs/bpf", "pin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// TestSizes configures other sizes than those of pinned maps.
func TestSizes(t *testing.T) {
	folder := pinFolder(t)
	maps := bpfload.KeptMaps{"kept": {Fit: bpfload.Keep}, "renewed": {Fit: bpfload.Renew}, "same": {}, "refused": {}}
	open := func(s *ebpf.CollectionSpec) (*ebpf.Collection, error) {
		if _, err := bpfload.OpenState(s, bpfload.Source{Folder: folder, Maps: maps, History: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		c, err := ebpf.NewCollectionWithOptions(s, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: folder}})
		if err == nil {
			t.Cleanup(c.Close)
		}
		return c, err
	}
	first, err := open(spec(map[string]uint32{"kept": 8, "renewed": 8, "same": 8, "refused": 8}))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range first.Maps {
		if err := m.Put(uint32(1), uint32(2)); err != nil {
			t.Fatal(err)
		}
	}
	second, err := open(spec(map[string]uint32{"kept": 16, "renewed": 16, "same": 8, "refused": 8}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		size uint32
		held error
	}{"kept": {8, nil}, "renewed": {16, ebpf.ErrKeyNotExist}, "same": {8, nil}, "refused": {8, nil}} {
		var v uint32
		m := second.Maps[name]
		if err := m.Lookup(uint32(1), &v); m.MaxEntries() != want.size || !errors.Is(err, want.held) {
			t.Errorf("%s has room for %d, and holds what it held: %v; want %v", name, m.MaxEntries(), err, want)
		}
	}
	if _, err = open(spec(map[string]uint32{"kept": 8, "renewed": 16, "same": 8, "refused": 16})); !errors.Is(err, ebpf.ErrMapIncompatible) {
		t.Errorf("a map of another size: %v", err)
	}
}

// TestLoad loads a struct's part of a collection, with a pinned map that fits and with one
// that does not.
func TestLoad(t *testing.T) {
	folder := pinFolder(t)
	load := func(size uint32) (program *ebpf.Program, held *ebpf.Map, err error) {
		s := spec(map[string]uint32{"held": size, "unused": 1 << 31}) // too large to create
		s.Maps["held"].Pinning = ebpf.PinByName
		s.Programs = map[string]*ebpf.ProgramSpec{
			"good": {Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}},
			"bad":  {Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Return()}},
		}
		var into struct {
			Good *ebpf.Program `ebpf:"good"`
			Held *ebpf.Map     `ebpf:"held"`
		}
		_, err = bpfload.Load(features.DSRAgent, s, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: folder}}, &into, bpfload.ErrVersion)
		t.Cleanup(func() { into.Good.Close(); into.Held.Close() })
		return into.Good, into.Held, err
	}
	if program, held, err := load(8); err != nil || program == nil || held == nil {
		t.Fatalf("a fitting map: %v, %v, %v", program, held, err)
	}
	if _, _, err := load(16); !errors.Is(err, bpfload.ErrVersion) || !errors.Is(err, ebpf.ErrMapIncompatible) {
		t.Errorf("a map of another size: %v", err)
	}
}
