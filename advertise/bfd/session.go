package bfd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/udpttl"
)

// Defaults: a neighbor is lost after 0.9 s. On a busy two-core machine, three times 100
// ms resulted in false alarms, three times 300 ms in none.
const (
	DefaultInterval   = 300 * time.Millisecond
	DefaultMultiplier = 3
)

// Timing configures how often packets are sent and how many may be missed.
type Timing struct {
	// Interval between packets, sent and expected; 0 means DefaultInterval.
	Interval time.Duration
	// Multiplier is how many consecutive packets may be missed; 0 means
	// DefaultMultiplier.
	Multiplier uint8
	// Port is the first port to try; 0 means PortMultihop, which also works over one hop.
	// A session follows the port that its neighbor uses.
	Port uint16
}

// Validate returns an error that names the invalid field.
func (t Timing) Validate() error {
	if t.Interval != 0 && (t.Interval < 10*time.Millisecond || t.Interval > time.Minute) {
		return fmt.Errorf("BFD interval %s: want 10ms to 1m (300ms is the default)", t.Interval)
	}
	return nil
}

// Session watches one neighbor.
type Session struct {
	e       *Endpoint
	remote  netip.Addr
	port    uint16
	onDown  func(reason string)
	onUp    func()  // may be nil
	machine machine // this, onUp and the following: under e.mu
	conn    *net.UDPConn
	tx      *time.Timer
	detect  *time.Timer
	last    time.Time // when the last packet of the neighbor arrived
	closed  bool
}

// Add starts to watch a neighbor and replaces an existing session with it. onDown is
// called once for each loss of a session that was up, in a separate goroutine, with the
// reason. A neighbor that reports an intentional shutdown is not lost.
func (e *Endpoint) Add(remote netip.Addr, t Timing, onDown func(reason string)) (*Session, error) {
	if t.Interval == 0 {
		t.Interval = DefaultInterval
	}
	if t.Multiplier == 0 {
		t.Multiplier = DefaultMultiplier
	}
	if t.Port == 0 {
		t.Port = PortMultihop
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.New("BFD is closed")
	}
	if old := e.byRemote[remote]; old != nil {
		old.end()
	}
	s := &Session{e: e, remote: remote, port: t.Port, onDown: onDown,
		machine: newMachine(e.discriminator(), t.Interval, t.Multiplier)}
	if err := s.dial(); err != nil {
		return nil, err
	}
	s.tx = time.AfterFunc(time.Hour, s.tick)
	s.detect = time.AfterFunc(time.Hour, s.overdue)
	e.byRemote[remote], e.byLocal[s.machine.local] = s, s
	e.filter()
	s.send(false)
	return s, nil
}

// State returns the state of the session.
func (s *Session) State() State {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.machine.state
}

// OnUp sets what is called, in a separate goroutine, whenever the session comes up, and now if
// it is up.
func (s *Session) OnUp(f func()) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.onUp = f; s.machine.state == Up {
		go f()
	}
}

// LastReceived returns when the last packet of a session that is up arrived, and how long the
// neighbor may be silent. limit is 0 if the session is not up.
func (s *Session) LastReceived() (last time.Time, limit time.Duration) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.machine.state != Up {
		return time.Time{}, 0
	}
	return s.last, s.machine.detection()
}

// Close notifies the neighbor of an intentional shutdown, and stops.
func (s *Session) Close() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.closed {
		return
	}
	s.machine.state, s.machine.diag = AdminDown, diagAdministrative
	s.send(false)
	s.end()
}

// end runs under e.mu.
func (s *Session) end() {
	s.closed = true
	s.tx.Stop()
	s.detect.Stop()
	s.conn.Close()
	if s.e.byRemote[s.remote] == s {
		delete(s.e.byRemote, s.remote)
		s.e.filter()
	}
	delete(s.e.byLocal, s.machine.local)
}

// dial opens the sending socket, which must have a high port (RFC 5881, section 4) and
// send packets with TTL 255 (section 5).
func (s *Session) dial() error {
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.remote, s.port))
	var err error
	for range 16 {
		from := netip.AddrPortFrom(s.e.local, uint16(49152+rand.N(65536-49152)))
		var c *net.UDPConn
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(from), to)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err == nil {
			err = udpttl.SendFar(c, s.remote.Is4())
		}
		if err != nil {
			break
		}
		s.conn = c
		return nil
	}
	return fmt.Errorf("BFD from %s to %s: %w", s.e.local, s.remote, err)
}

// send sends a packet and schedules the next; runs under e.mu. Network errors for a
// packet (port closed, no route) are ignored: the detection timer decides.
func (s *Session) send(final bool) {
	_, _ = s.conn.Write(s.machine.out(final).marshal())
	if final {
		return
	}
	if iv := s.machine.txInterval(); iv > 0 {
		s.tx.Reset(jitter(iv, s.machine.mult))
	} else {
		s.tx.Stop()
	}
}

func (s *Session) tick() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if !s.closed {
		s.send(false)
	}
}

// receive processes a packet; runs under e.mu.
func (s *Session) receive(p packet, port uint16) {
	if port != s.port {
		old := s.conn
		s.port = port
		if err := s.dial(); err == nil {
			old.Close()
		}
	}
	wasUp := s.machine.state == Up
	slow := s.machine.remoteMinRx
	changed := s.machine.receive(p)
	s.last = time.Now()
	if p.poll {
		s.send(true)
	}
	if changed || slow != s.machine.remoteMinRx {
		s.send(false)
	}
	if s.machine.state >= Init {
		s.detect.Reset(s.machine.detection())
	} else {
		s.detect.Stop()
	}
	if !wasUp && s.machine.state == Up && s.onUp != nil {
		go s.onUp()
	}
	if wasUp && s.machine.state == Down && p.state == Down {
		go s.onDown(fmt.Sprintf("BFD is down: %s reports that it lost the session or restarted", s.remote))
	}
}

func (s *Session) overdue() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.closed || s.machine.state < Init {
		return
	}
	s.e.drain()
	if s.closed || s.machine.state < Init {
		return
	}
	silent, limit := time.Since(s.last), s.machine.detection()
	if silent < limit {
		s.detect.Reset(limit - silent)
		return
	}
	wasUp := s.machine.state == Up
	s.machine.expire()
	s.send(false)
	if wasUp {
		go s.onDown(fmt.Sprintf("BFD is down: nothing received from %s for %s", s.remote, silent.Round(time.Millisecond)))
	}
}
