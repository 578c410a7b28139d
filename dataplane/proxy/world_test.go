package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

func TestMain(m *testing.M) { refusals.Main(m) }

var count atomic.Int64

// config is small, with a separate directory and cgroup.
func config(t testing.TB) Config {
	return Config{
		PinDir: fmt.Sprintf("/sys/fs/bpf/proxy-%d", count.Add(1)), Cgroup: testkit.EnterCgroup(t),
		MaxFrontends: 1024, MaxTargets: 4096, MaxSourceRanges: 128,
	}
}

// open opens a data plane that ends with the test, with all its state.
func open(t testing.TB, c Config) *DataPlane {
	t.Helper()
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Detach(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return d
}

func apply(t testing.TB, d *DataPlane, set ...proxy.Frontend) {
	t.Helper()
	if err := d.Apply(set, nil); err != nil {
		t.Fatal(err)
	}
}

func key(at string, protocol service.Protocol) proxy.Key {
	a := netip.MustParseAddrPort(at)
	return proxy.Key{Addr: a.Addr(), Port: a.Port(), Protocol: protocol}
}

// choice has these endpoints, which are sorted.
func choice(targets ...netip.AddrPort) (c proxy.Choice) {
	for _, t := range targets {
		c.Targets = append(c.Targets, proxy.Target{Addr: t})
	}
	return c
}

// frontend is one with these endpoints for all clients.
func frontend(k proxy.Key, targets ...netip.AddrPort) proxy.Frontend {
	c := choice(targets...)
	return proxy.Frontend{Key: k, Inside: c, Outside: c}
}

// addAddress adds an address to lo. It is removed with the test.
func addAddress(t testing.TB, address string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(lo, a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.AddrDel(lo, a); err != nil {
			t.Error(err)
		}
	})
}

// serveTCP runs a server that sends its name to every client, and then echoes. It ends
// with the test.
func serveTCP(t testing.TB, at string, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go netns.ServeTCP(l, func(c net.Conn) {
		c.Write([]byte(name))
		for b := make([]byte, 512); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			c.Write(b[:n])
		}
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// serveUDP runs a server that answers every datagram with its name.
func serveUDP(t testing.TB, at string, name string) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 512); ; {
			_, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				c.WriteTo([]byte(name), from)
			}
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String())
}
