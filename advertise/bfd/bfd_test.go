package bfd

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/udpttl"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

func TestPacketRoundTrip(t *testing.T) {
	p := packet{diag: diagExpired, state: Up, poll: true, detectMult: 3, my: 7, your: 9,
		desiredMinTx: 300 * time.Millisecond, requiredRx: time.Second}
	// RFC 5880, section 4.1: version 1, diag 1; state up, poll; multiplier 3,
	// length 24; discriminators; microseconds.
	want := []byte{0x21, 0xe0, 3, 24, 0, 0, 0, 7, 0, 0, 0, 9, 0, 4, 0x93, 0xe0, 0, 0x0f, 0x42, 0x40, 0, 0, 0, 0}
	if got := p.marshal(); string(got) != string(want) {
		t.Errorf("on the wire % x, want % x", got, want)
	}
	if got, err := parse(want); err != nil || got != p {
		t.Errorf("read %+v, %v; want %+v", got, err, p)
	}
}

func TestParseRefuses(t *testing.T) {
	good := packet{state: Down, detectMult: 3, my: 7}.marshal()
	if _, err := parse(good); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(b []byte) []byte{
		"10 bytes":                           func(b []byte) []byte { return b[:10] },
		"version 2":                          func(b []byte) []byte { b[0] = 2 << 5; return b },
		"length field is 200":                func(b []byte) []byte { b[3] = 200; return b },
		"length field is 20,":                func(b []byte) []byte { b[3] = 20; return b },
		"authenticated":                      func(b []byte) []byte { b[1] |= flagAuthentication; return b },
		"multipoint":                         func(b []byte) []byte { b[1] |= flagMultipoint; return b },
		"multiplier 0":                       func(b []byte) []byte { b[2] = 0; return b },
		"discriminator 0":                    func(b []byte) []byte { b[7] = 0; return b },
		"state up without the local discrim": func(b []byte) []byte { b[1] = byte(Up) << 6; return b },
	} {
		if _, err := parse(spoil(append([]byte(nil), good...))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// FuzzPacket passes any two packets to a session. It must not panic, accepted packets
// must marshal to the same bytes, and no interval may be unreasonable.
func FuzzPacket(f *testing.F) {
	down := packet{state: Down, detectMult: 3, my: 7, desiredMinTx: time.Second, requiredRx: time.Second}
	up := packet{state: Up, poll: true, detectMult: 255, my: 7, your: 1, desiredMinTx: 1 << 31 * time.Microsecond}
	f.Add(down.marshal(), up.marshal())
	f.Add(up.marshal(), packet{state: AdminDown, final: true, detectMult: 1, my: 8, your: 1}.marshal())
	f.Add([]byte{0x20, 0x40, 3, 24}, []byte{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		fuzzlimit.Time(t)
		m := newMachine(1, DefaultInterval, 3)
		for _, b := range [][]byte{first, second} {
			p, err := parse(b)
			if err != nil {
				continue
			}
			if again, err := parse(p.marshal()); err != nil || again != p {
				t.Errorf("%+v became %+v, %v", p, again, err)
			}
			m.receive(p)
			if tx, limit := m.txInterval(), m.detection(); tx < 0 || limit <= 0 || limit > 255<<32*time.Microsecond {
				t.Errorf("after %+v packets are %s apart, and silence counts after %s", p, tx, limit)
			}
			m.out(p.poll)
		}
	})
}

// The table of RFC 5880, section 6.8.6: our state, the packet's, our next.
func TestStates(t *testing.T) {
	for _, c := range []struct{ have, received, want State }{
		{Down, Down, Init}, {Down, Init, Up}, {Down, Up, Down}, {Down, AdminDown, Down},
		{Init, Down, Init}, {Init, Init, Up}, {Init, Up, Up}, {Init, AdminDown, Down},
		{Up, Down, Down}, {Up, Init, Up}, {Up, Up, Up}, {Up, AdminDown, Down},
		{AdminDown, Up, AdminDown}, {AdminDown, Down, AdminDown},
	} {
		m := newMachine(1, DefaultInterval, 3)
		m.state = c.have
		changed := m.receive(packet{state: c.received, my: 2, detectMult: 3, desiredMinTx: time.Second, requiredRx: time.Second})
		if m.state != c.want || changed != (c.have != c.want) {
			t.Errorf("in %s received %s: now %s (changed %v), want %s", c.have, c.received, m.state, changed, c.want)
		}
	}
}

func TestIntervals(t *testing.T) {
	m := newMachine(1, 300*time.Millisecond, 3)
	if got := m.txInterval(); got != slowInterval {
		t.Errorf("while down packets are %s apart, want %s", got, slowInterval)
	}
	m.receive(packet{state: Init, my: 2, detectMult: 5, desiredMinTx: 50 * time.Millisecond, requiredRx: 400 * time.Millisecond})
	if got := m.txInterval(); got != 400*time.Millisecond {
		t.Errorf("packets are %s apart, want the slower side's 400ms", got)
	}
	if got := m.detection(); got != 5*300*time.Millisecond {
		t.Errorf("detection after %s, want the sender's 5 times our 300ms", got)
	}
	if !m.out(false).poll || m.out(true).poll || !m.out(true).final {
		t.Error("a session that came up does not poll for its new interval")
	}
	m.receive(packet{state: Up, my: 2, final: true, detectMult: 5})
	if m.out(false).poll {
		t.Error("polls on after the answer")
	}
	if m.txInterval() != 0 {
		t.Error("sends though the other side asked for nothing")
	}
	m.expire()
	if m.state != Down || m.out(false).your != 0 || m.out(false).diag != diagExpired {
		t.Errorf("after silence: %+v", m.out(false))
	}
	for range 1000 {
		if j := jitter(time.Second, 1); j < 750*time.Millisecond || j > 900*time.Millisecond {
			t.Fatalf("interval of a second with multiplier 1 became %s", j)
		}
	}
}

func endpoint(t *testing.T, addr string) *Endpoint {
	t.Helper()
	e, err := Listen(netip.MustParseAddr(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func until(t *testing.T, s *Session, want State) {
	t.Helper()
	for start := time.Now(); s.State() != want; time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("session is %s, want %s", s.State(), want)
		}
	}
}

func add(t *testing.T, e *Endpoint, remote string, timing Timing) (*Session, chan string) {
	t.Helper()
	down := make(chan string, 10)
	s, err := e.Add(netip.MustParseAddr(remote), timing, func(reason string) { down <- reason })
	if err != nil {
		t.Fatal(err)
	}
	return s, down
}

// IPv6 and multiple hops are tested between namespaces, by advertise/bgp.
func TestUpThenSilence(t *testing.T) {
	for _, port := range []uint16{PortMultihop, PortSingleHop} {
		a, b := endpoint(t, "127.31.0.1"), endpoint(t, "127.31.0.2")
		sa, downA := add(t, a, "127.31.0.2", Timing{Port: port})
		sb, downB := add(t, b, "127.31.0.1", Timing{Port: port})
		start := time.Now()
		until(t, sa, Up)
		until(t, sb, Up)
		t.Logf("up after %s", time.Since(start))
		// As if the link were cut: nothing arrives from b any more.
		b.mu.Lock()
		sb.end()
		b.mu.Unlock()
		start = time.Now()
		select {
		case reason := <-downA:
			t.Logf("seen after %s: %s", time.Since(start), reason)
			if !strings.Contains(reason, "nothing received from 127.31.0.2") {
				t.Errorf("reason %q", reason)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("silence not seen")
		}
		until(t, sa, Down)
		if len(downB) != 0 {
			t.Errorf("a closed session called back: %s", <-downB)
		}
		a.Close()
		b.Close()
	}
}

func TestRestartedNeighborIsSeen(t *testing.T) {
	for port, want := range map[uint16]string{PortSingleHop: "restarted", PortMultihop: "nothing received"} {
		a, b := endpoint(t, "127.31.1.1"), endpoint(t, "127.31.1.2")
		sa, down := add(t, a, "127.31.1.2", Timing{Port: port})
		first, _ := add(t, b, "127.31.1.1", Timing{Port: port})
		until(t, sa, Up)
		until(t, first, Up)
		second, _ := add(t, b, "127.31.1.1", Timing{Port: port}) // replaces the first without notice
		if reason := <-down; !strings.Contains(reason, want) {
			t.Errorf("on port %d: reason %q, want %q", port, reason, want)
		}
		until(t, second, Up)
		until(t, sa, Up)
		a.Close()
		b.Close()
	}
}

func TestClosingOnPurposeIsNoLoss(t *testing.T) {
	a, b := endpoint(t, "127.31.2.1"), endpoint(t, "127.31.2.2")
	sa, down := add(t, a, "127.31.2.2", Timing{})
	sb, _ := add(t, b, "127.31.2.1", Timing{})
	until(t, sa, Up)
	until(t, sb, Up)
	sb.Close()
	until(t, sa, Down)
	select {
	case reason := <-down:
		t.Errorf("called back: %s", reason)
	case <-time.After(2 * DefaultMultiplier * DefaultInterval): // longer than detecting silence takes
	}
}

func TestFollowsTheNeighborsPort(t *testing.T) {
	a, b := endpoint(t, "127.31.3.1"), endpoint(t, "127.31.3.2")
	sa, _ := add(t, a, "127.31.3.2", Timing{Port: PortMultihop})
	sb, _ := add(t, b, "127.31.3.1", Timing{Port: PortSingleHop})
	until(t, sa, Up)
	until(t, sb, Up)
}

func TestUnknownSendersAreRejected(t *testing.T) {
	a := endpoint(t, "127.31.4.1")
	s, _ := add(t, a, "127.31.4.2", Timing{})
	unfiltered(t, a)
	send := func(from string, port int, ttl bool, p packet) {
		t.Helper()
		before := a.Refused()
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP("127.31.4.1"), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if ttl {
			if err := udpttl.SendFar(c, true); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Write(p.marshal()); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); a.Refused() == before; time.Sleep(time.Millisecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("packet from %s to port %d was not refused", from, port)
			}
		}
	}
	hello := packet{state: Down, detectMult: 3, my: 5, desiredMinTx: time.Second, requiredRx: time.Second}
	send("127.31.4.3", PortMultihop, true, hello)
	send("127.31.4.2", PortSingleHop, false, hello) // a router on the path decremented the 255
	wrong := hello
	wrong.your = s.machine.local + 1
	send("127.31.4.2", PortMultihop, true, wrong)
	mine := hello
	mine.your = s.machine.local
	send("127.31.4.3", PortMultihop, true, mine)
	if s.State() != Down {
		t.Errorf("an unknown sender changed the session: %s", s.State())
	}
}

func TestPortsInUse(t *testing.T) {
	endpoint(t, "127.31.5.1")
	if _, err := Listen(netip.MustParseAddr("127.31.5.1")); err == nil || !strings.Contains(err.Error(), "BFD on 127.31.5.1, UDP port 3784") {
		t.Errorf("second endpoint on one address: %v", err)
	}
	if err := (Timing{Interval: time.Millisecond}).Validate(); err == nil {
		t.Error("1 ms was taken")
	}
}
