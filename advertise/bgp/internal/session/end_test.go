package session

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
)

// connected returns the two ends of a connection.
func connected(t *testing.T) (ours, peers *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 24, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	ours, err = l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); ours.Close() })
	return ours, c
}

// A peer that is rejected while data it sent is still unread receives the NOTIFICATION
// and then the end of the connection, not a reset, even if it continues to send.
func TestRejectionIsNoReset(t *testing.T) {
	ours, peers := connected(t)
	update := message(pkt.BGP_MSG_UPDATE, make([]byte, 4000))
	for range 10 {
		if _, err := peers.Write(update); err != nil {
			t.Fatal(err)
		}
	}
	session := sessionOn(ours, Options{})
	session.Reject(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED, "too much")
	for range 10 {
		if _, err := peers.Write(update); err != nil {
			t.Fatalf("it writes on: %v", err)
		}
	}
	_ = peers.SetReadDeadline(time.Now().Add(20 * time.Second))
	all, err := io.ReadAll(peers)
	if err != nil || len(all) < 21 || all[18] != pkt.BGP_MSG_NOTIFICATION {
		t.Errorf("it got %x, %v", all, err)
	}
}

// If a peer ends a session, and writing to it fails before we have read why, the reported
// reason is the NOTIFICATION, not a restart.
func TestNotificationCountsMoreThanTheReset(t *testing.T) {
	ours, peers := connected(t)
	session := sessionOn(ours, Options{})
	if _, err := peers.Write(slices.Concat(greet(), message(pkt.BGP_MSG_NOTIFICATION, []byte{pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED}))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(peers.SetLinger(0), peers.Close()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); session.write(wire.Keepalive()) == nil; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no write fails")
		}
	}
	if reason := session.Status().Reason; !strings.Contains(reason, "reset") {
		t.Errorf("before it was read: %q", reason)
	}
	session.Run()
	if reason := session.Status().Reason; !strings.Contains(reason, "maximum number of prefixes") {
		t.Errorf("the session ended because: %q", reason)
	}
}

// A peer that reads more slowly than it is sent to for long is given up.
func TestSlowReader(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		slow  bool
	}{"a slow one": {20 * time.Millisecond, true}, "a fast one": {0, false}} {
		t.Run(name, func(t *testing.T) {
			ours, far := connected(t)
			_ = ours.SetWriteBuffer(16 << 10)
			go func() {
				for b := make([]byte, 64<<10); ; time.Sleep(c.pause) {
					if _, err := far.Read(b); err != nil {
						return
					}
				}
			}()
			session := sessionOn(ours, Options{Group: &Group{Hold: time.Second}})
			update := message(pkt.BGP_MSG_UPDATE, make([]byte, 4000))
			var failed error
			for end := time.Now().Add(3 * slowTimes * time.Second); failed == nil && time.Now().Before(end); {
				failed = session.write(update)
				if !c.slow {
					time.Sleep(time.Millisecond)
				}
			}
			if slow := failed != nil && strings.Contains(failed.Error(), "too slowly"); slow != c.slow {
				t.Errorf("writing failed: %v", failed)
			}
		})
	}
}
