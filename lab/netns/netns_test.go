package netns_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func here(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestDoGoesThereAndComesBack(t *testing.T) {
	ns := testkit.NetNS(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := here(t)
	var there string
	if err := ns.Do(func() error {
		there = here(t)
		return unix.ENOTTY
	}); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("Do gives %v, want the function's error", err)
	}
	if there == home || here(t) != home {
		t.Errorf("home is %s, there was %s, now %s", home, there, here(t))
	}
	// Another namespace from within one.
	other := testkit.NetNS(t)
	testkit.Do(t, ns, func() error {
		return other.Do(func() error {
			if l := here(t); l == there || l == home {
				t.Errorf("within: %s", l)
			}
			return nil
		})
	})
}

func TestDoPassesGoexitOn(t *testing.T) {
	ns := testkit.NetNS(t)
	after := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		ns.Do(func() error {
			runtime.Goexit()
			return nil
		})
		after = true
	}()
	<-done
	if after {
		t.Error("the caller of a function that ended its goroutine continues")
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	ns, err := netns.Create("twice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netns.Create("twice"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second of that name gives %v", err)
	}
	if err := ns.Close(); err != nil {
		t.Error(err)
	}
	testkit.NoLeftovers(t)
	if err := ns.Do(func() error { return nil }); err == nil {
		t.Error("a closed namespace can be entered")
	}
}

func TestWriteSysctl(t *testing.T) {
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, func() error { return netns.WriteSysctl("net.ipv4.conf.lo.forwarding", "1") })
	read := func() error {
		got, err := os.ReadFile("/proc/sys/net/ipv4/conf/lo/forwarding")
		if string(got) != "1\n" {
			t.Errorf("it reads %q", got)
		}
		return err
	}
	testkit.Do(t, ns, read)
	if err := netns.WriteSysctl("net.ipv4.no_such", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unknown name gives %v", err)
	}
}
