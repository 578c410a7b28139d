// Package bpfload loads BPF programs onto pinned maps: which maps outlive the
// agent, in what size, and what becomes of a load that the kernel refuses. What
// is optional is decided in internal/features, what programs do in their packages.
package bpfload

import (
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/features"
)

// ErrVersion is returned, wrapped, for a pinned map of another version.
var ErrVersion = errors.New("a pinned map is of another version of Fairlead: detach that one first, which ends its flows")

// Load loads what a struct has fields for ("ebpf" tags), as LoadAndAssign does.
// Optional features that the kernel refuses are left out and returned; fields of
// programs that need them stay nil. Where a pinned map does not fit, the error
// wraps misfit, else it names what was refused.
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

// prune removes the programs that a struct has no field for, and the maps that
// neither it nor the rest needs.
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

// Fit is what becomes of a map that is pinned in another size than it is to have.
type Fit int

const (
	// Refuse leaves it to the loader, which refuses such a map.
	Refuse Fit = iota
	// Keep takes the size that it has, for the sake of what it holds.
	Keep
	// Renew starts with an empty map: the contents are worth nothing in another size.
	Renew
)

func (f Fit) String() string { return [...]string{"configured", "kept", "renewed"}[f] }

// PinnedSize gives how many entries a pinned map has room for; 0 where nothing is pinned.
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
