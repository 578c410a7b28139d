package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// attacker sends BGP messages from addresses of a host, in sessions that are each as
// short as one attack. It ignores how they end.
type attacker struct {
	t      *testing.T
	ns     *netns.NS
	target netip.AddrPort
}

// nth is an address of the attacker's host.
func nth(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 66, byte(n)}) }

// session connects from the nth address and establishes a session, if accepted.
func (a *attacker) session(n int) (net.Conn, error) {
	c, err := a.dial(n)
	if err != nil {
		return nil, err
	}
	err = greet(c, nth(n))
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// greet opens a session and waits until the other end has done so too.
func greet(c net.Conn, id netip.Addr) error {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(slices.Concat(rawbgp.Open(65021, 90, id), rawbgp.Keepalive())); err != nil {
		return err
	}
	for keepalive := false; !keepalive; {
		typ, err := readMessage(c)
		if err != nil {
			return err
		}
		if typ == rawbgp.TypeNotification {
			return errors.New("the session was rejected")
		}
		keepalive = typ == rawbgp.TypeKeepalive
	}
	return c.SetDeadline(time.Time{})
}

func readMessage(c net.Conn) (typ byte, err error) {
	head := make([]byte, 19)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, c, int64(head[16])<<8+int64(head[17])-19)
	return head[18], err
}

// send establishes a session from the nth address, reads what arrives, sends these
// messages, and stays for a while, or until the target ends it.
func (a *attacker) send(n int, stay time.Duration, messages ...[]byte) error {
	return a.sendUntil(n, stay, nil, messages...)
}

func (a *attacker) sendUntil(n int, stay time.Duration, enough <-chan struct{}, messages ...[]byte) error {
	c, err := a.session(n)
	if err != nil {
		return err
	}
	defer c.Close()
	return converse(c, stay, enough, messages...)
}

func converse(c net.Conn, stay time.Duration, enough <-chan struct{}, messages ...[]byte) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	defer func() { c.Close(); <-ended }()
	for _, m := range messages {
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		if _, err := c.Write(m); err != nil {
			return err
		}
	}
	until := time.After(stay)
	for {
		select {
		case <-ended:
			return errors.New("the target ended the session")
		case <-until:
			return nil
		case <-enough:
			return nil
		case <-time.After(time.Second):
			_, _ = c.Write(rawbgp.Keepalive())
		}
	}
}

// malformed sends each malformed UPDATE in its own session.
func (a *attacker) malformed() {
	n := 10
	for name, m := range rawbgp.Malformed(nth(1)) {
		n++
		if err := a.send(n, 20*time.Millisecond, m, rawbgp.Announce(netip.MustParseAddr("40.9.0.0"), nth(1), 10)); err != nil {
			a.t.Logf("%s: %v", name, err)
		}
	}
}

// oversized sends routes with as many attributes as fit, and messages that exceed the
// maximum length.
func (a *attacker) oversized() {
	for i, m := range tooLarge() {
		if err := a.send(60+i, 20*time.Millisecond, m); err != nil {
			a.t.Logf("oversized %d: %v", i, err)
		}
	}
}

func tooLarge() [][]byte {
	var routes []byte
	for i := range 200 {
		first := netip.AddrFrom4([4]byte{40, 8, byte(i), 0})
		routes = append(routes, rawbgp.Announce(first, nth(1), 50, rawbgp.Communities(500, uint32(i))...)...)
		routes = append(routes, rawbgp.Announce(first, nth(1), 50, rawbgp.Communities(700, uint32(i))...)...)
	}
	return [][]byte{routes, rawbgp.Message(rawbgp.TypeUpdate, make([]byte, 60000)),
		rawbgp.Message(rawbgp.TypeOpen, make([]byte, 5000)), rawbgp.Message(200, make([]byte, 5000))}
}

// slow has sessions that read nothing, and connections that send a byte at a time.
func (a *attacker) slow(during func()) {
	var all []net.Conn
	for n := 70; n < 80; n++ {
		if c, err := a.session(n); err == nil {
			all = append(all, c)
		}
	}
	done := make(chan struct{})
	var drips sync.WaitGroup
	open := rawbgp.Open(65021, 90, nth(80))
	drips.Go(func() {
		c, err := a.dial(80)
		if err != nil {
			return
		}
		defer c.Close()
		for _, b := range open {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				_, _ = c.Write([]byte{b})
			}
		}
	})
	during()
	close(done)
	drips.Wait()
	for _, c := range all {
		c.Close()
	}
}

func (a *attacker) dial(n int) (c net.Conn, err error) {
	err = a.ns.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: nth(n).AsSlice()}, Timeout: 10 * time.Second}
		c, err = d.Dial("tcp", a.target.String())
		return err
	})
	return c, err
}

// flap has sessions that are established, advertise, and end, as fast as they can.
func (a *attacker) flap(times int) {
	routes := rawbgp.Announce(netip.MustParseAddr("40.7.0.0"), nth(1), 1000)
	var all sync.WaitGroup
	for n := 90; n < 94; n++ {
		all.Go(func() {
			for range times {
				_ = a.send(n, 0, routes)
			}
		})
	}
	all.Wait()
}

// block is the first address of the nth attacker's prefixes.
func block(n, family int) netip.Addr {
	if family == 4 {
		return netip.AddrFrom4([4]byte{byte(40 + n), 0, 0, 0})
	}
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::", 0x100+n))
}

// flood advertises prefixes of each family from each of several addresses, withdraws them
// and advertises them again, several times, and keeps its sessions until enough is
// closed. One more attacker advertises too many, and must be disconnected.
func (a *attacker) flood(by scale, enough <-chan struct{}) {
	var all sync.WaitGroup
	hop6 := netip.MustParseAddr("fd00::66:1")
	for n := range by.attackers + 1 {
		all.Go(func() {
			prefixes, enough := by.prefixes, enough
			if n == by.attackers {
				prefixes, enough = by.tooMany, nil
			}
			there := slices.Concat(rawbgp.Announce(block(n, 4), nth(1), prefixes), rawbgp.Announce(block(n, 6), hop6, prefixes))
			gone := slices.Concat(rawbgp.Withdraw(block(n, 4), prefixes), rawbgp.Withdraw(block(n, 6), prefixes))
			messages := [][]byte{there}
			for range by.churn {
				messages = append(messages, gone, there)
			}
			if err := a.sendUntil(100+n, patience, enough, messages...); (err != nil) != (n == by.attackers) {
				a.t.Errorf("flood %d of %d prefixes: %v", n, prefixes, err)
			}
		})
	}
	all.Wait()
}

// lure is a peer to which a speaker connects, which misbehaves in another way in each
// session. It counts the sessions.
type lure struct {
	listener net.Listener
	sessions atomic.Int64
	all      sync.WaitGroup
}

func startLure(t *testing.T, ns *netns.NS, prefixes int) *lure {
	t.Helper()
	l := &lure{}
	err := ns.Do(func() (err error) {
		l.listener, err = net.Listen("tcp", netip.AddrPortFrom(nth(1), 179).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.stop)
	hop6 := netip.MustParseAddr("fd00::66:1")
	there := slices.Concat(rawbgp.Announce(block(0, 4), nth(1), prefixes), rawbgp.Announce(block(0, 6), hop6, prefixes))
	gone := slices.Concat(rawbgp.Withdraw(block(0, 4), prefixes), rawbgp.Withdraw(block(0, 6), prefixes))
	ways := [][]byte{slices.Concat(there, gone, there, gone, there), {}, bytes.Repeat(rawbgp.Message(rawbgp.TypeRouteRefresh, []byte{0, 1, 0, 1}), 1000)}
	ways = append(ways, tooLarge()...)
	for _, m := range rawbgp.Malformed(nth(1)) {
		ways = append(ways, m)
	}
	l.all.Go(func() {
		for i := 0; ; i++ {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			if greet(c, nth(1)) == nil {
				l.sessions.Add(1)
				_ = converse(c, 100*time.Millisecond, nil, ways[i%len(ways)])
			}
			c.Close()
		}
	})
	return l
}

func (l *lure) stop() { l.listener.Close(); l.all.Wait() }
