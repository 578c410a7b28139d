// Package bpffs keeps pins: the folder on the BPF file system where maps and
// links outlive the agent that made them. It knows nothing of what is pinned.
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

// ErrInUse is what Open answers, wrapped, where another process holds the
// folder.
var ErrInUse = errors.New("held by another agent")

// Dir is a folder of pins, held by this process alone until Close.
type Dir struct {
	path string
	lock *os.File
}

// Open makes the folder where it is missing and takes hold of it. The hold ends
// with the process, however that ends; the pins stay.
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

// Path gives where a pin of that name is.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Names lists the pins whose names begin so, sorted.
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

// Remove takes a pin away; one that is absent is no error.
func (d *Dir) Remove(name string) error {
	if err := os.Remove(d.Path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close lets go of the folder; what is pinned stays.
func (d *Dir) Close() error { return d.lock.Close() }

// RemoveAll takes every pin and the folder itself away, and lets go of it.
func (d *Dir) RemoveAll() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}
