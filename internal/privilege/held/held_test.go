package held_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// without runs f on a thread without effective capabilities in its own network namespace.
func without(t *testing.T, portStart string, f func()) {
	t.Helper()
	ns := testkit.NetNS(t)
	testkit.Do(t, ns, func() error { return netns.WriteSysctl("net.ipv4.ip_unprivileged_port_start", portStart) })
	testkit.Do(t, ns, func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var before, none [2]unix.CapUserData
		if err := unix.Capget(&header, &before[0]); err != nil {
			return err
		}
		none = before
		none[0].Effective, none[1].Effective = 0, 0
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		f()
		return unix.Capset(&header, &before[0])
	})
}

// TestLacks checks that root lacks nothing, and that a thread without capabilities lacks
// what its roles need, except for a port that is open to unprivileged processes.
func TestLacks(t *testing.T) {
	if err := held.Lacks(privilege.Balancer, privilege.Reflector); err != nil {
		t.Errorf("as root: %v", err)
	}
	without(t, "1024", func() {
		if err := held.Lacks(privilege.Reflector); err == nil || !strings.Contains(err.Error(), "CAP_NET_BIND_SERVICE") {
			t.Errorf("without capabilities: %v", err)
		}
	})
	without(t, "0", func() {
		if err := held.Lacks(privilege.Reflector); err != nil {
			t.Errorf("where ports are anybody's: %v", err)
		}
		if err := held.Lacks(privilege.Router); err == nil {
			t.Error("a router lacks nothing without capabilities")
		}
	})
}

// TestBlame checks that missing capabilities are added only to permission errors.
func TestBlame(t *testing.T) {
	lacks := privilege.Error(privilege.For(privilege.Reflector))
	denied, other := fmt.Errorf("listen: %w", unix.EACCES), fmt.Errorf("listen: %w", unix.EADDRINUSE)
	if err := held.Blame(denied, lacks); !strings.Contains(err.Error(), "CAP_NET_BIND_SERVICE") {
		t.Error(err)
	}
	if err := held.Blame(other, lacks); err != other {
		t.Error(err)
	}
	if err := held.Blame(fs.ErrPermission, nil); err != fs.ErrPermission {
		t.Error(err)
	}
}
