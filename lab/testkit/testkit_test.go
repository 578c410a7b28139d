package testkit_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestMainIsolates(t *testing.T) {
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Name != "lo" || links[0].Flags&net.FlagUp == 0 {
		t.Errorf("links are %v (%v), want only lo, up", links, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/bpf", &fs); err != nil || fs.Type != unix.BPF_FS_MAGIC {
		t.Errorf("/sys/fs/bpf is of type %#x (%v), want a bpffs", fs.Type, err)
	}
	if p := os.Getpid(); p == 1 || p > 1000 {
		t.Errorf("pid is %d: not a new pid namespace, or its init", p)
	}
}

func TestNetNS(t *testing.T) {
	ns := testkit.NetNS(t)
	var inside, outside net.Listener
	testkit.Do(t, ns, func() (err error) {
		inside, err = net.Listen("tcp", "127.0.0.1:7777")
		return err
	})
	defer inside.Close()
	outside, err := net.Listen("tcp", "127.0.0.1:7777")
	if err != nil {
		t.Fatalf("the port is taken by a listener of another namespace: %v", err)
	}
	outside.Close()
	if err := ns.Do(func() error { return unix.ENOTTY }); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("Do gives %v, want the function's error", err)
	}
}

func TestEventually(t *testing.T) {
	start := time.Now()
	testkit.Eventually(t, time.Minute, func() error {
		if time.Since(start) < 20*time.Millisecond {
			return errors.New("too early")
		}
		return nil
	})
}

func TestLeftoverMounts(t *testing.T) {
	testkit.NoLeftovers(t)
	folder := t.TempDir()
	for range 2 { // one on top of the other
		if err := unix.Mount("tmpfs", folder, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(folder, 0)
	}
	if left := sandbox.Leftovers(); !slices.Contains(left, "mount "+folder) || len(left) != 2 {
		t.Errorf("left over: %q, want two mounts on %s", left, folder)
	}
}
