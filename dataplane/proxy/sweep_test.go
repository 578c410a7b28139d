package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// connectUDP connects a socket to a service.
func connectUDP(t testing.TB, family int, to netip.AddrPort) socket {
	t.Helper()
	s := newSocket(t, family, unix.SOCK_DGRAM)
	if err := s.connect(to); err != nil {
		t.Fatal(err)
	}
	return s
}

// waitEnded waits until the kernel has ended a socket.
func waitEnded(t testing.TB, s socket) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if _, err := unix.Write(s.fd, []byte("?")); !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.EDESTADDRREQ) {
			return fmt.Errorf("the socket is still there: %v", err)
		}
		return nil
	})
}

func alive(t testing.TB, s socket) {
	t.Helper()
	if _, err := unix.Write(s.fd, []byte("?")); err != nil {
		t.Errorf("a socket was ended that is right: %v", err)
	}
}

// bothFinders runs a test with the socket iterator and, as on kernels that reject it,
// with sock_diag.
func bothFinders(t *testing.T, f func(*testing.T, Config)) {
	if refusals.Without(features.SocketDestroy) {
		if d := open(t, config(t)); len(d.Degraded()) != 1 || d.Degraded()[0].Feature != features.SocketDestroy {
			t.Errorf("degraded: %v", d.Degraded())
		}
		return
	}
	for name, without := range map[string]bool{"iterator": false, "sock_diag": true} {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			c.withoutIterator = without
			f(t, c)
		})
	}
}

func TestEndsUDPSocketsOfTargetsThatAreGone(t *testing.T) {
	bothFinders(t, endsUDPSockets)
}

func endsUDPSockets(t *testing.T, c Config) {
	d := open(t, c)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			stays, goes := serveUDP(t, w.server, "stays"), serveUDP(t, w.server, "goes")
			k, other := key(w.service, service.UDP), key(w.other, service.UDP)
			to := netip.AddrPortFrom(k.Addr, k.Port)
			apply(t, d, frontend(k, goes), frontend(other, goes))
			sockets := []socket{connectUDP(t, w.family, to)}
			testkit.Do(t, testkit.NetNS(t), func() error {
				sockets = append(sockets, connectUDP(t, w.family, to))
				return nil
			})
			elsewhere := connectUDP(t, w.family, netip.AddrPortFrom(other.Addr, other.Port))
			direct := connectUDP(t, w.family, goes)
			apply(t, d, frontend(k, stays))
			stillThere := connectUDP(t, w.family, to)
			for _, s := range sockets {
				waitEnded(t, s)
			}
			alive(t, elsewhere)
			alive(t, direct)
			alive(t, stillThere)
			if err := d.Apply(nil, []proxy.Key{other}); err != nil {
				t.Fatal(err)
			}
			waitEnded(t, elsewhere)
			alive(t, direct)
		})
	}
	// The sockets of an earlier test's namespace may still be closing: they are reported
	// until a later sweep no longer finds them.
	testkit.Eventually(t, patience, func() error {
		w := d.Describe().Warnings
		if len(w) == 0 {
			return nil
		}
		d.sweeper.wake()
		return errors.New(strings.Join(w, "; "))
	})
}

// An endpoint that accepts no new flows serves its existing ones until it is removed.
func TestKeepsUDPSocketsOfTargetsThatStillServe(t *testing.T) { bothFinders(t, keepsUDPSockets) }

func keepsUDPSockets(t *testing.T, c Config) {
	d := open(t, c)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			stays, goes := serveUDP(t, w.server, "stays"), serveUDP(t, w.server, "goes")
			f := frontend(key(w.service, service.UDP), goes)
			to := netip.AddrPortFrom(f.Addr, f.Port)
			for _, affinity := range []time.Duration{0, time.Hour} {
				f.Affinity, f.Inside = affinity, choice(goes)
				apply(t, d, f)
				connected, sender := connectUDP(t, w.family, to), newSocket(t, w.family, unix.SOCK_DGRAM)
				ask := func(s socket, want string) {
					t.Helper()
					if err := s.sendTo(to); err != nil {
						t.Fatal(err)
					}
					if name, from := s.receive(); name != want || from != to {
						t.Errorf("%s answered from %s, want %s", name, from, want)
					}
				}
				ask(sender, "goes")
				f.Inside = choice(stays)
				f.Inside.Keeps = choice(goes).Targets
				apply(t, d, f)
				ask(sender, "goes")
				ask(newSocket(t, w.family, unix.SOCK_DGRAM), "stays")
				f.Inside.Targets = nil // as with a policy, which applies only to new ones
				apply(t, d, f)
				ask(sender, "goes")
				if err := newSocket(t, w.family, unix.SOCK_DGRAM).sendTo(to); !errors.Is(err, noTarget()) {
					t.Errorf("a new socket: %v", err)
				}
				if err := d.sweeper.sweepNow(); err != nil {
					t.Fatal(err)
				}
				alive(t, connected)
				f.Inside = choice(stays)
				apply(t, d, f)
				ask(sender, "stays")
				waitEnded(t, connected)
			}
		})
	}
}

// sweepNow sweeps once, in the caller's namespace.
func (s *sweeper) sweepNow() error {
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer own.Close()
	return s.sweep(own)
}

// What was removed while no agent ran is found by the next.
func TestEndsUDPSocketsThatAPredecessorLeft(t *testing.T) { bothFinders(t, endsWhatAPredecessorLeft) }

func endsWhatAPredecessorLeft(t *testing.T, c Config) {
	d := open(t, c)
	f := frontend(key("10.96.0.1:53", service.UDP), serveUDP(t, "127.1.0.1:0", "goes"))
	apply(t, d, f)
	s := connectUDP(t, unix.AF_INET, netip.AddrPortFrom(f.Addr, f.Port))
	d.sweeper.close() // it dies before it has swept
	if err := d.Apply(nil, []proxy.Key{f.Key}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	alive(t, s)
	open(t, c)
	waitEnded(t, s)
}
