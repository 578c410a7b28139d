package bpffs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Standard is the conventional mount point of the BPF file system (bpf(8)).
const Standard = "/sys/fs/bpf"

// Mount ensures that path is on a BPF file system: if not, it mounts one on Standard if
// path is below that, otherwise on path itself.
func Mount(path string) error {
	path = filepath.Clean(path)
	on, err := Mounted(path)
	if on || err != nil {
		return err
	}
	target := path
	if strings.HasPrefix(path, Standard+"/") {
		target = Standard
	} else if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("pins in %s: %w", path, err)
	}
	if err := unix.Mount("bpf", target, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount a BPF file system on %s: %w: mount one there beforehand, or run as root", target, err)
	}
	return nil
}

// Mounted reports whether a path is on a BPF file system. If the path does not exist, its
// nearest existing parent counts.
func Mounted(path string) (bool, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			return st.Type == unix.BPF_FS_MAGIC, nil
		}
		if err != unix.ENOENT || path == "/" {
			return false, fmt.Errorf("pins in %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}
