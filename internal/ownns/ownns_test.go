package ownns_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ownns"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestEnter checks that a thread with CAP_SYS_ADMIN enters another namespace, and that
// without it, it may stay where it is and the error names the capability.
func TestEnter(t *testing.T) {
	other := testkit.NetNS(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // permanently: the thread loses its capabilities
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
			return
		}
		defer home.Close()
		for _, fd := range []int{other.FD(), int(home.Fd())} {
			if err := ownns.Enter(fd); err != nil {
				t.Error(err)
			}
		}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
			return
		}
		if err := ownns.Enter(int(home.Fd())); err != nil {
			t.Errorf("the thread's own namespace: %v", err)
		}
		if err := ownns.Enter(other.FD()); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			t.Errorf("another namespace: %v, want EPERM and CAP_SYS_ADMIN", err)
		}
	}()
	<-ended
}
