package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the names of tests' cgroups. They are the one thing that a
// sandbox does not take away: a killed test leaves them, and the next one that
// makes a cgroup removes them.
const cgroupPrefix = "fairlead-test-"

// Cgroup makes a cgroup of version 2 that ends with the test. Nobody is in it.
func Cgroup(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	own, err := heldCgroup(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(own.Name()), own.Close()); err != nil {
			t.Error(err)
		}
	})
	return own.Name()
}

// EnterCgroup puts this process into a cgroup of the test's own: what is attached
// there touches nobody else's sockets.
func EnterCgroup(t testing.TB) string {
	t.Helper()
	own := Cgroup(t)
	t.Cleanup(func() {
		if err := joinCgroup(filepath.Dir(own)); err != nil {
			t.Error(err)
		}
	})
	if err := joinCgroup(own); err != nil {
		t.Fatal(err)
	}
	return own
}

func joinCgroup(folder string) error {
	return os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte("0"), 0)
}

// heldCgroup makes a cgroup that is locked for as long as it is open, and removes
// those that nobody has locked: their tests were killed. The root is locked
// meanwhile, so that nobody removes what is about to be locked.
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
			_ = os.Remove(folder) // one whose processes are about to end stays, for the next test
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
