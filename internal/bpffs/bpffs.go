// Package bpffs manages pins: the directory on the BPF file system where maps and links
// outlive the agent that created them. What is pinned is up to the callers.
package bpffs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse is wrapped by Open's error if another process has locked the directory.
var ErrInUse = errors.New("held by another agent")

// Dir is a directory of pins, locked by this process until Close.
type Dir struct {
	path string
	lock *os.File
}

// Open creates the directory if needed and locks it. The lock ends with the process,
// however that ends; the pins stay.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("pins in %s: %w", path, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, fmt.Errorf("pins in %s: %w", path, err)
	}
	if st.Type != unix.BPF_FS_MAGIC {
		return nil, fmt.Errorf("pins in %s: not on a BPF file system: mount one there (mount -t bpf bpf /sys/fs/bpf)", path)
	}
	lock, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if err == unix.EWOULDBLOCK {
			err = ErrInUse
		}
		return nil, fmt.Errorf("pins in %s: %w", path, err)
	}
	return &Dir{path: path, lock: lock}, nil
}

// Path returns the path of a pin.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Names returns the names of pins with a prefix, sorted.
func (d *Dir) Names(prefix string) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Remove removes a pin. Removing an absent one is not an error.
func (d *Dir) Remove(name string) error {
	if err := os.Remove(d.Path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close unlocks the directory; the pins stay.
func (d *Dir) Close() error { return d.lock.Close() }

// RemoveAll removes all pins and the directory itself, and unlocks it.
func (d *Dir) RemoveAll() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}
