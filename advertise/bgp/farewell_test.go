package bgp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// connected returns the two ends of a connection.
func connected(t *testing.T) (ours, peers *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 21, 0, 1)})
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

// sessionOn returns a session that does not need an engine.
func sessionOn(c *net.TCPConn) *tap {
	session := (&engine{}).newTap(c, netip.MustParseAddr("127.21.0.2"), &group{hold: time.Minute})
	session.change = func(*tap) {}
	return session
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
	session := sessionOn(ours)
	session.reject(pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED, "too much")
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

// If a peer ends a session, and its reset arrives before we have read why, the reported
// reason is the NOTIFICATION, not a restart.
func TestNotificationCountsMoreThanTheReset(t *testing.T) {
	ours, peers := connected(t)
	session := sessionOn(ours)
	session.enter(stateEstablished)
	if _, err := peers.Write(message(pkt.BGP_MSG_NOTIFICATION, []byte{pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED})); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(peers.SetLinger(0), peers.Close()); err != nil {
		t.Fatal(err)
	}
	keepalive := message(pkt.BGP_MSG_KEEPALIVE, nil)
	eventually(t, "a write that fails", func() bool { _, err := session.Write(keepalive); return err != nil })
	if _, _, _, reason, _ := session.status(); !strings.Contains(reason, "reset") {
		t.Errorf("before it was read: %q", reason)
	}
	for b := make([]byte, 4096); ; {
		if _, err := session.Read(b); err != nil {
			break
		}
	}
	if _, _, _, reason, _ := session.status(); !strings.Contains(reason, "maximum number of prefixes") {
		t.Errorf("the session ended because: %q", reason)
	}
}
