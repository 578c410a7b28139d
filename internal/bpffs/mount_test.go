package bpffs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountMountsWhereNoneIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bpf", "pins")
	for range 2 {
		if err := Mount(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(path, 0); err == nil {
		t.Error("it was mounted twice")
	}
}

func TestMountLeavesTheStandardOneAlone(t *testing.T) {
	mark := filepath.Join(Standard, "mark")
	pin(t, mark)
	defer os.Remove(mark)
	if err := Mount(filepath.Join(Standard, "not", "yet", "there")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("another one was mounted over it")
	}
}
