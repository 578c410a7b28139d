package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// cgroupFolder is where a node mounts this machine's cgroup hierarchies, which are
// missing in a sandbox.
const cgroupFolder = "/sys/fs/cgroup"

// ours is the prefix of our cgroups' names. Cgroups are the only thing that a sandbox
// does not remove: a killed run leaves them empty, and the next one removes them.
const ours = "fairlead-node-"

// cgroupName contains the ID of the process that owns the cgroups.
func cgroupName(node string) string { return ours + sandbox.OuterPID() + "-" + node }

// hierarchies returns this machine's hierarchies (cgroups(7)): those of version 1 by
// their controllers ("cpu,cpuacct", "name=systemd"), that of version 2 as "".
func hierarchies() ([]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("/proc/self/cgroup: %q is no cgroup", line)
		}
		all = append(all, fields[1])
	}
	return all, nil
}

// mountCgroups mounts the hierarchies as they are on a machine that booted with them.
func mountCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if slices.Equal(all, []string{""}) {
		return mount("cgroup2", cgroupFolder, "cgroup2", 0, "")
	}
	if err := mount("tmpfs", cgroupFolder, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, h := range all {
		kind, folder, options := "cgroup", strings.TrimPrefix(h, "name="), h
		switch {
		case h == "":
			kind, folder = "cgroup2", "unified"
		case folder != h:
			options = "none," + h
		}
		folder = filepath.Join(cgroupFolder, folder)
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
		if err := mount(kind, folder, kind, 0, options); err != nil {
			return err
		}
		for alias := range strings.SplitSeq(h, ",") {
			if alias != h {
				err = errors.Join(err, os.Symlink(folder, filepath.Join(cgroupFolder, alias)))
			}
		}
	}
	return err
}

// unified returns the folder of the hierarchy of version 2. Every machine on which BPF
// programs can be attached to cgroups has it.
func unified() (string, error) {
	for _, folder := range []string{cgroupFolder, cgroupFolder + "/unified"} {
		if _, err := os.Stat(folder + "/cgroup.controllers"); err == nil {
			return folder, nil
		}
	}
	return "", errors.New("this machine has no cgroups of version 2: mount -t cgroup2 gives them")
}

// roots returns the folders of all mounted hierarchies.
func roots() []string {
	if only, err := unified(); err == nil && only == cgroupFolder {
		return []string{cgroupFolder}
	}
	var found []string
	entries, _ := os.ReadDir(cgroupFolder)
	for _, e := range entries {
		if e.IsDir() {
			found = append(found, filepath.Join(cgroupFolder, e.Name()))
		}
	}
	return found
}

// cgroup is a node's cgroup in each hierarchy.
type cgroup struct {
	name string
	held []*os.File // its folders, locked so that a sweep leaves them alone
	// system is the child in version 2 for the node's own programs; pods are in its
	// siblings.
	system *os.File
}

func makeCgroup(name string) (*cgroup, error) {
	c := &cgroup{name: name}
	for _, root := range roots() {
		if err := c.makeIn(root); err != nil {
			return nil, errors.Join(fmt.Errorf("make cgroup %s: %w", name, err), c.remove())
		}
	}
	if err := c.makeSystem(); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup %s: %w", name, err), c.remove())
	}
	return c, nil
}

func (c *cgroup) makeSystem() error {
	folder, err := unified()
	if err != nil {
		return err
	}
	folder = filepath.Join(folder, c.name, "system")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	c.system, err = os.Open(folder)
	return err
}

func (c *cgroup) makeIn(root string) error {
	dir := filepath.Join(root, c.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	c.held = append(c.held, folder)
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	// Version 1: no process can enter a cpuset without CPUs.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return delegate(root, dir)
}

// delegate enables all controllers for the children of cgroups of version 2.
func delegate(dirs ...string) error {
	for _, dir := range dirs {
		controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, c := range strings.Fields(string(controllers)) {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// processes returns the processes in the cgroup and its descendants.
func (c *cgroup) processes() []int {
	var pids []int
	for _, root := range roots() {
		filepath.WalkDir(filepath.Join(root, c.name), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil
			}
			text, _ := os.ReadFile(path)
			for _, field := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// remove removes the cgroup and its descendants. It waits a while for processes that are
// exiting.
func (c *cgroup) remove() error {
	deadline := time.Now().Add(10 * time.Second)
	for _, root := range roots() {
		for {
			err := removeTree(filepath.Join(root, c.name))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	for _, folder := range append(c.held, c.system) {
		folder.Close()
	}
	return nil
}

// removeTree removes folders from the bottom up; the files in cgroup folders disappear
// with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = unix.Rmdir(dir)
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// sweepCgroups removes the cgroups of killed runs.
func sweepCgroups() error {
	place, err := kube.NewPlace(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		return mountCgroups()
	})
	if err != nil {
		return fmt.Errorf("look for cgroups: %w", err)
	}
	defer place.Close()
	return place.Do(func() error {
		for _, root := range roots() {
			left, _ := filepath.Glob(filepath.Join(root, ours+"*"))
			for _, dir := range left {
				if err := sweep(dir); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// sweep removes a folder that no process has locked.
func sweep(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return removeTree(dir)
}
