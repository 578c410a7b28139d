// Package bpfload loads BPF programs with pinned maps: it determines which maps outlive the
// agent, in what size, and handles loads that the kernel rejects. internal/features decides
// what is optional; other packages define what programs do.
package bpfload

import (
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/features"
)

// ErrVersion is wrapped for a pinned map of another version.
var ErrVersion = errors.New("a pinned map is of another version of Fairlead: detach that one first, which ends its flows")

// Load loads what a struct has fields for ("ebpf" tags), like LoadAndAssign. Optional
// features that the kernel rejects are left out and returned; fields of programs that need
// them stay nil. If a pinned map does not fit, the error wraps misfit, otherwise it names
// what was rejected.
func Load(c features.Component, spec *ebpf.CollectionSpec, o ebpf.CollectionOptions, into any, misfit error) (features.Missing, error) {
	prune(spec, o, reflect.TypeOf(into).Elem())
	missing, err := features.Load(c, spec, func(s *ebpf.CollectionSpec) error {
		loaded, err := ebpf.NewCollectionWithOptions(s, o)
		if err != nil {
			return err
		}
		defer loaded.Close() // what is not assigned
		return features.Assign(loaded, into)
	})
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return nil, fmt.Errorf("%w: %w", misfit, err)
	}
	return missing, err
}

// prune removes the programs that a struct has no field for, and the maps that are no
// longer needed.
func prune(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions, into reflect.Type) {
	needed := map[string]bool{}
	for _, f := range reflect.VisibleFields(into) {
		needed[f.Tag.Get("ebpf")] = true
	}
	for name := range o.MapReplacements {
		needed[name] = true
	}
	for name, p := range spec.Programs {
		if !needed[name] {
			delete(spec.Programs, name)
			continue
		}
		for _, i := range p.Instructions {
			needed[i.Reference()] = true
		}
	}
	for name := range spec.Maps {
		if !needed[name] {
			delete(spec.Maps, name)
		}
	}
	for name, v := range spec.Variables {
		if spec.Maps[v.SectionName] == nil {
			delete(spec.Variables, name)
		}
	}
}

// Fit is how to handle a pinned map whose size differs from the configured one.
type Fit int

const (
	// Refuse leaves it to the loader, which rejects such a map.
	Refuse Fit = iota
	// Keep uses the existing size, to retain the contents.
	Keep
	// Renew starts with an empty map, because the contents are useless in another size.
	Renew
)

func (f Fit) String() string { return [...]string{"configured", "kept", "renewed"}[f] }

// PinnedSize returns the maximum number of entries of a pinned map; 0 if nothing is pinned.
func PinnedSize(path string) (uint32, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer m.Close()
	return m.MaxEntries(), nil
}
