// Package proxybench measures the kernel's part of the service proxy: the memory of its
// maps, and the cost of writing as many entries as it does without any other work.
package proxybench

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
)

// Memory returns how much memory the kernel accounts for the maps pinned in a folder and
// its subfolders, in bytes.
func Memory(folder string) (bytes uint64, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return nil // programs and links are pinned there, too
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		n, _ := info.Memlock()
		bytes += n
		return nil
	})
	return bytes, err
}

// Sizes of the service proxy's map entries (bpf/proxy/maps.h).
const (
	keySize   = 20
	valueSize = 32
	lot       = 4096 // entries per call
)

// WriteRaw writes entries to its own preallocated map, and returns how long that took.
func WriteRaw(entries int) (time.Duration, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: keySize, ValueSize: valueSize, MaxEntries: uint32(max(entries, 1))})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	keys, values := make([][keySize / 4]uint32, entries), make([][valueSize / 4]uint32, entries)
	for i := range keys {
		keys[i][0] = uint32(i)
	}
	began := time.Now()
	for i := 0; i < entries; i += lot {
		end := min(i+lot, entries)
		if _, err := m.BatchUpdate(keys[i:end], values[i:end], nil); err != nil {
			return 0, fmt.Errorf("write %d entries: %w", entries, err)
		}
	}
	return time.Since(began), nil
}
