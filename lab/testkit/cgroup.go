package testkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// cgroupPrefix is the prefix of test cgroups' names. Cgroups are the only thing that a
// sandbox does not remove: a killed test leaves them, and the next one that creates a
// cgroup removes them.
const cgroupPrefix = "fairlead-test-"

// Cgroup creates an empty cgroup of version 2 that is removed after the test.
func Cgroup(t testing.TB) string {
	t.Helper()
	own, err := OpenCgroup(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := CloseCgroup(own); err != nil {
			t.Error(err)
		}
	})
	return own.Name()
}

// OpenCgroup creates an empty cgroup of version 2, whose hierarchy it mounts on a folder,
// for use until CloseCgroup.
func OpenCgroup(root string) (*os.File, error) {
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		return nil, fmt.Errorf("mount cgroup2 on %s: %w", root, err)
	}
	own, err := heldCgroup(root)
	if err != nil {
		return nil, errors.Join(err, unix.Unmount(root, unix.MNT_DETACH))
	}
	return own, nil
}

// CloseCgroup removes what OpenCgroup has created; the cgroup must be empty.
func CloseCgroup(own *os.File) error {
	return errors.Join(os.Remove(own.Name()), own.Close(), unix.Unmount(filepath.Dir(own.Name()), unix.MNT_DETACH))
}

// EnterCgroup moves this process into the test's own cgroup: programs attached there
// affect no other sockets.
func EnterCgroup(t testing.TB) string {
	t.Helper()
	own := Cgroup(t)
	t.Cleanup(func() {
		if err := JoinCgroup(filepath.Dir(own)); err != nil {
			t.Error(err)
		}
	})
	if err := JoinCgroup(own); err != nil {
		t.Fatal(err)
	}
	return own
}

// JoinCgroup moves this process into a cgroup.
func JoinCgroup(folder string) error {
	return os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0)
}

// heldCgroup creates a cgroup that is locked for as long as it is open, and removes
// unlocked ones, whose tests were killed. It locks the root, so that no other test
// removes a cgroup that is about to be locked.
func heldCgroup(root string) (*os.File, error) {
	all, err := lock(root, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	left, err := filepath.Glob(filepath.Join(root, cgroupPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, folder := range left {
		if unused, err := lock(folder, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			_ = os.Remove(folder) // if its processes are still exiting, it stays for the next test
			unused.Close()
		}
	}
	folder, err := os.MkdirTemp(root, cgroupPrefix)
	if err != nil {
		return nil, err
	}
	return lock(folder, unix.LOCK_EX)
}

// lock opens a folder and locks it (flock(2)) until it is closed, or its process
// dies.
func lock(folder string, how int) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
