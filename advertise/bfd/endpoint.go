// Package bfd detects the failure of a neighbor within a second, even if no link goes
// down: Bidirectional Forwarding Detection in asynchronous mode, without echo and
// authentication (RFC 5880, RFC 5881, RFC 5883). It is independent of routing protocols:
// an Endpoint holds the sockets of one local address, a Session watches one neighbor and
// calls back when it is lost.
//
// gobgp has BFD too, but it starts a second late, occupies the port in the whole
// namespace, and can deadlock when several sessions fail at the same time
// (docs/decisions/0007).
package bfd

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/udpttl"
)

// UDP ports: single hop (RFC 5881), which only accepts packets that no router has
// forwarded, and multihop (RFC 5883).
const (
	PortSingleHop = 3784
	PortMultihop  = 4784
)

// maxPacket limits the packet size that is read, in bytes; ours have 24.
const maxPacket = 128

// Endpoint receives for all sessions of one local address.
type Endpoint struct {
	local   netip.Addr
	sockets []*net.UDPConn
	wg      sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	byRemote map[netip.Addr]*Session
	byLocal  map[uint32]*Session
	refused  uint64
}

// Listen opens both BFD ports of a local address. It fails if another program, such as
// another agent on the same address, has them.
func Listen(local netip.Addr) (*Endpoint, error) {
	e := &Endpoint{local: local, byRemote: map[netip.Addr]*Session{}, byLocal: map[uint32]*Session{}}
	for _, port := range []uint16{PortSingleHop, PortMultihop} {
		if err := e.listen(port); err != nil {
			e.closeSockets()
			return nil, fmt.Errorf("BFD on %s, UDP port %d: %w", local, port, err)
		}
	}
	e.filter()
	for i, c := range e.sockets {
		e.wg.Add(1)
		go e.receive(c, i == 0)
	}
	return e, nil
}

// Refused counts packets that passed the filter but matched no session or violated a
// rule.
func (e *Endpoint) Refused() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused
}

// Close ends all sessions, and notifies the neighbors that it is intentional.
func (e *Endpoint) Close() {
	e.mu.Lock()
	e.closed = true
	sessions := make([]*Session, 0, len(e.byRemote))
	for _, s := range e.byRemote {
		sessions = append(sessions, s)
	}
	e.mu.Unlock()
	for _, s := range sessions {
		s.Close()
	}
	e.closeSockets()
	e.wg.Wait()
}

func (e *Endpoint) closeSockets() {
	for _, c := range e.sockets {
		c.Close()
	}
}

func (e *Endpoint) receive(c *net.UDPConn, singleHop bool) {
	defer e.wg.Done()
	for {
		d, err := udpttl.Receive(c, maxPacket)
		if err != nil {
			return // the socket was closed
		}
		e.mu.Lock()
		e.handle(d, singleHop)
		e.mu.Unlock()
	}
}

// drain processes what is already in the socket buffers.
func (e *Endpoint) drain() {
	for i, c := range e.sockets {
		udpttl.Pending(c, maxPacket, func(d udpttl.Datagram) { e.handle(d, i == 0) })
	}
}

// handle runs under e.mu.
func (e *Endpoint) handle(d udpttl.Datagram, singleHop bool) {
	p, err := parse(d.Data)
	// RFC 5881, section 5: a single-hop packet must still have TTL 255.
	if err != nil || singleHop && d.TTL != udpttl.MaxTTL {
		e.refused++
		return
	}
	from := d.From
	if from.IsLinkLocalUnicast() {
		from = from.WithZone(e.local.Zone()) // the link that the sockets are bound to
	}
	s := e.byRemote[from]
	if p.your != 0 {
		s = e.byLocal[p.your]
	}
	if s == nil || s.remote != from || s.machine.state == Up && !singleHop && (p.your == 0 || s.port == PortSingleHop) {
		// The last condition: if the TTL proves nothing, only a sender that knows our
		// discriminator may take a session down. A neighbor that restarts is detected by
		// its silence.
		e.refused++
		return
	}
	port := uint16(PortMultihop)
	if singleHop {
		port = PortSingleHop
	}
	s.receive(p, port)
}

// discriminator returns an unused nonzero number; runs under e.mu.
func (e *Endpoint) discriminator() uint32 {
	for {
		if d := rand.Uint32(); d != 0 && e.byLocal[d] == nil {
			return d
		}
	}
}

// jitter shortens an interval by up to a quarter, so that systems do not synchronize (RFC
// 5880, section 6.8.7).
func jitter(d time.Duration, mult uint8) time.Duration {
	high := 1.0
	if mult == 1 {
		high = 0.9
	}
	return time.Duration(float64(d) * (0.75 + rand.Float64()*(high-0.75)))
}
