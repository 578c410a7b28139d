// Package bpfmap reads entire BPF maps and writes the desired contents.
// dataplane/internal/walk reads large maps in pieces.
package bpfmap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Read returns the contents of a map.
func Read[K, V comparable](m *ebpf.Map) (map[K]V, error) {
	held := map[K]V{}
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		held[key] = value
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read map %s: %w", m, err)
	}
	return held, nil
}

// Hold makes the wanted entries the contents of a map.
func Hold[K, V comparable](m *ebpf.Map, wanted map[K]V) error {
	held, err := Read[K, V](m)
	if err != nil {
		return err
	}
	return Change(m, held, wanted)
}

// Change changes the contents of a map from held to wanted and writes only differences. It
// adds before it deletes, so that no traffic is rejected in between; what does not fit into
// a full map is added after the deletions.
func Change[K, V comparable](m *ebpf.Map, held, wanted map[K]V) error {
	var errs []error
	late := map[K]V{}
	for key, value := range wanted {
		if have, there := held[key]; there && have == value {
			continue
		}
		if m.Put(key, value) != nil {
			late[key] = value
		}
	}
	for key := range held {
		if _, keep := wanted[key]; keep {
			continue
		}
		if err := m.Delete(key); !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	for key, value := range late {
		errs = append(errs, m.Put(key, value))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write map %s: %w", m, err)
	}
	return nil
}
