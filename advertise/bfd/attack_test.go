package bfd

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/udpttl"
)

// unfiltered removes the kernel filter: receive must reject the same packets.
func unfiltered(t *testing.T, e *Endpoint) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.sockets {
		rc, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		err = rc.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
	}
}

// sendAs sends packets from any address of 127.0.0.0/8, like an attacker with spoofed
// addresses.
func sendAs(t *testing.T, from, to string, port int, ttl255 bool) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP(to), Port: port})
	if err == nil && ttl255 {
		err = udpttl.SendFar(c, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// An attacker who spoofs a neighbor's address but does not see its packets cannot take a
// session down: not without our discriminator, and not through the port on which the TTL
// is not checked.
func TestForgedPacketsDoNotEndASession(t *testing.T) {
	for name, port := range map[string]uint16{"single hop": PortSingleHop, "multihop": PortMultihop} {
		t.Run(name, func(t *testing.T) {
			a, b := endpoint(t, "127.31.6.1"), endpoint(t, "127.31.6.2")
			sa, lost := add(t, a, "127.31.6.2", Timing{Port: port, Interval: time.Second})
			sb, _ := add(t, b, "127.31.6.1", Timing{Port: port, Interval: time.Second})
			until(t, sa, Up)
			until(t, sb, Up)
			for _, p := range []packet{
				{state: Down, detectMult: 3, my: 5, desiredMinTx: time.Second, requiredRx: time.Second},
				{state: AdminDown, detectMult: 3, my: 5, desiredMinTx: time.Second, requiredRx: time.Second},
				{state: AdminDown, detectMult: 3, my: 5, your: sa.machine.local + 1, requiredRx: time.Second},
			} {
				for _, c := range []*net.UDPConn{
					sendAs(t, "127.31.6.2", "127.31.6.1", PortMultihop, true), sendAs(t, "127.31.6.2", "127.31.6.1", PortMultihop, false),
					sendAs(t, "127.31.6.2", "127.31.6.1", PortSingleHop, false),
				} {
					if _, err := c.Write(p.marshal()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
			select {
			case reason := <-lost:
				t.Errorf("lost: %s", reason)
			case <-time.After(100 * time.Millisecond):
			}
			if sa.State() != Up || sa.port != port {
				t.Errorf("the session is %s, on port %d", sa.State(), sa.port)
			}
			a.Close()
			b.Close()
		})
	}
}

// A flood from unknown senders, or from too far away, does not crowd out a neighbor.
func TestFloodFromUnknownSenders(t *testing.T) {
	a, b := endpoint(t, "127.31.7.1"), endpoint(t, "127.31.7.2")
	sa, lost := add(t, a, "127.31.7.2", Timing{Interval: 500 * time.Millisecond})
	sb, _ := add(t, b, "127.31.7.1", Timing{Interval: 500 * time.Millisecond})
	until(t, sa, Up)
	until(t, sb, Up)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	sent := make(chan int)
	p := packet{state: AdminDown, detectMult: 3, my: 5, your: 7, requiredRx: time.Second}.marshal()
	for _, c := range []*net.UDPConn{sendAs(t, "127.31.7.3", "127.31.7.1", PortMultihop, true), sendAs(t, "127.31.7.2", "127.31.7.1", PortSingleHop, false)} {
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				_, _ = c.Write(p)
			}
			sent <- n
		}()
	}
	all := <-sent + <-sent
	t.Logf("%d packets were sent, %d read and refused", all, a.Refused())
	if all < 1000 || a.Refused() > 0 {
		t.Errorf("of %d packets that the kernel was to drop %d were read", all, a.Refused())
	}
	if len(lost) > 0 || sa.State() != Up {
		t.Errorf("the session is %s: %v", sa.State(), <-lost)
	}
}
