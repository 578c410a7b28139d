package gather

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/source/manifest"
)

// pinFolder is the directory for pins, relative to a BPF file system.
const pinFolder = "fairlead"

func bpfFolder(_ context.Context, o doctor.Options) (doctor.BPFFS, error) {
	b := doctor.BPFFS{Path: o.BPFFS}
	kind, flags, err := fileSystem(o.BPFFS)
	if err != nil {
		return b, err
	}
	b.Mounted = kind == unix.BPF_FS_MAGIC
	b.Writable = b.Mounted && flags&unix.ST_RDONLY == 0 && unix.Access(o.BPFFS, unix.W_OK) == nil
	b.CarriedOver, b.OtherLayouts, err = xdp.OlderLayouts(filepath.Join(o.BPFFS, pinFolder, "balancer"))
	if errors.Is(err, fs.ErrPermission) {
		err = nil // only root can read the pins
	}
	return b, err
}

// fileSystem returns the type and flags of the file system of a path, or of its nearest
// existing parent.
func fileSystem(path string) (kind int64, flags int64, err error) {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			return int64(st.Type), int64(st.Flags), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" || path == "." {
			return 0, 0, fmt.Errorf("%s: %w", path, err)
		}
	}
}

func cgroup(_ context.Context, o doctor.Options) (c doctor.Cgroup, err error) {
	c.Path = o.Cgroup
	if c.Path == "" {
		if c.Path, err = cgroupMount(); err != nil || c.Path == "" {
			return c, err
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(c.Path, &st); err != nil {
		return c, fmt.Errorf("%s: %w", c.Path, err)
	}
	c.V2 = st.Type == unix.CGROUP2_SUPER_MAGIC
	// Only a non-root cgroup has a type (cgroups(7)).
	_, err = os.Stat(filepath.Join(c.Path, "cgroup.type"))
	c.Root = errors.Is(err, fs.ErrNotExist)
	return c, nil
}

// cgroupMount returns where cgroup version 2 is mounted, or "".
func cgroupMount() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		var st unix.Statfs_t // another mount may hide it
		if err := unix.Statfs(fields[4], &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return fields[4], nil
		}
	}
	return "", nil
}

// manifests opens every file that an agent would read.
func manifests(_ context.Context, o doctor.Options) (doctor.Manifests, error) {
	m := doctor.Manifests{Path: o.Services}
	if o.Services == "" {
		return m, nil
	}
	entries, err := os.ReadDir(o.Services)
	if err != nil {
		m.Error = err.Error()
		return m, nil
	}
	for _, e := range entries {
		if !manifest.IsManifest(e.Name()) {
			continue
		}
		m.Files++
		f, err := os.Open(filepath.Join(o.Services, e.Name()))
		if err != nil {
			m.Error = err.Error()
			continue
		}
		f.Close()
	}
	return m, nil
}
