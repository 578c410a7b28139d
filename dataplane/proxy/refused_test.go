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

// TestWithoutOptional serves sockets on kernels without optional features.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.SocketProxy, refusals.Tests{
		Few: "^(TestTCPSocket.*|TestNoTargets|TestEndsUDPSocketsThatAPredecessorLeft)$",
		All: "^(TestTCPSocket.*|TestConnectedUDPSocket|TestUnconnectedUDPSocket.*|TestNoTargets|TestNodePorts.*|TestNodeOnly|TestAffinity" +
			"|TestHoldsWhatIsMeant|TestRestartUnderConnections|TestEndsUDPSockets.*|TestKeepsUDPSockets.*)$",
	})
}

// TestWithoutEssential: an agent fails to start on kernels without essential features,
// while its predecessor's programs keep serving.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		takeOver, fresh := config(t), config(t)
		takeOver.PinDir, takeOver.Cgroup, _ = strings.Cut(at, " ")
		if d, err := Open(takeOver); err == nil { // existing pins need not be created
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
	if err := d.Close(); err != nil { // the predecessor has ended, its pinned programs serve
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
