package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var here = netip.MustParseAddr("127.25.0.1")

// TestDial connects to a listener that requires a password, with and without it, and to a
// port on which nothing listens.
func TestDial(t *testing.T) {
	l, err := Listen(t.Context(), netip.AddrPortFrom(here, 0), map[netip.Prefix]string{
		netip.MustParsePrefix("127.25.1.0/24"): "right", netip.MustParsePrefix("2001:db8::/32"): "other family"})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("this kernel has no TCP MD5")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	for name, c := range map[string]struct {
		target Target
		want   string // "" for success
	}{
		"the password":           {Target{To: to, From: netip.MustParseAddr("127.25.1.1"), Password: "right"}, ""},
		"a neighbor without one": {Target{To: to, From: netip.MustParseAddr("127.25.2.1")}, ""},
		"only we limit the hops": {Target{To: to, From: netip.MustParseAddr("127.25.2.2"), MaxHops: 1}, "no answer from"},
		"another password":       {Target{To: to, From: netip.MustParseAddr("127.25.1.2"), Password: "wrong"}, "or the TCP MD5 passwords differ"},
		"no password":            {Target{To: to, From: netip.MustParseAddr("127.25.1.3")}, "or it requires a TCP MD5 password"},
		"nobody":                 {Target{To: netip.AddrPortFrom(netip.MustParseAddr("127.25.0.2"), to.Port())}, "refuses connections"},
		"not our address":        {Target{To: to, From: netip.MustParseAddr("192.0.2.1")}, "192.0.2.1 is not an address of this machine"},
	} {
		conn, err := c.target.Dial(t.Context())
		if err == nil {
			conn.Close()
		}
		switch {
		case err == nil && c.want != "", err != nil && c.want == "":
			t.Errorf("%s: %v", name, err)
		case err != nil && !strings.Contains(c.target.DialWords(err), c.want):
			t.Errorf("%s: %q, want %q", name, c.target.DialWords(err), c.want)
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := (Target{To: netip.MustParseAddrPort("192.0.2.1:179")}).Dial(ctx); c != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", c, err)
	}
}
