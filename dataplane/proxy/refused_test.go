package proxy

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional has the sockets served on kernels that refuse what is
// optional.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.SocketProxy, refusals.Tests{
		Few: "^(TestTCPSocket.*|TestNoTargets|TestEndsUDPSocketsThatAPredecessorLeft)$",
		All: "^(TestTCPSocket.*|TestConnectedUDPSocket|TestUnconnectedUDPSocket.*|TestNoTargets|TestNodePorts.*|TestNodeOnly|TestAffinity" +
			"|TestHoldsWhatIsMeant|TestRestartUnderConnections|TestEndsUDPSockets.*|TestKeepsUDPSockets.*)$",
	})
}

// TestWithoutEssential has an agent fail to start on kernels that refuse what is
// essential, while its predecessor's programs serve on.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		takeOver, fresh := config(t), config(t)
		takeOver.PinDir, takeOver.Cgroup, _ = strings.Cut(at, " ")
		if d, err := Open(takeOver); err == nil { // what is pinned already needs not be made
			d.Close()
		}
		fresh.PinDir += fmt.Sprint("-", os.Getpid())
		defer os.RemoveAll(fresh.PinDir)
		d, err := Open(fresh)
		if err == nil {
			err = d.Detach()
		}
		return err
	}) {
		return
	}
	c := config(t)
	d := open(t, c)
	backend := serveTCP(t, "127.1.0.1:0", "there")
	f := frontend(key("10.96.0.1:80", service.TCP), backend)
	apply(t, d, f)
	if err := d.Close(); err != nil { // the predecessor is gone, what it pinned serves
		t.Fatal(err)
	}
	refusals.Essential(t, features.SocketProxy, c.PinDir+" "+c.Cgroup, func(t *testing.T) {
		s := newSocket(t, unix.AF_INET, unix.SOCK_STREAM)
		if err := s.connect(netip.AddrPortFrom(f.Addr, f.Port)); err != nil {
			t.Errorf("the previous programs no longer serve: %v", err)
		}
	})
	open(t, c)
}
