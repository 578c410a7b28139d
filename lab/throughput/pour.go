// Package throughput sends as many bytes as possible, and counts those that arrive, to
// measure shares and limits of bandwidth. For requests and replies use package load, for
// single datagrams package flows.
package throughput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// Sink receives TCP and UDP on a port of a host, and answers nothing.
type Sink struct {
	tcp, udp atomic.Uint64
	listener net.Listener
	packets  net.PacketConn

	mu    sync.Mutex
	conns map[net.Conn]bool // nil when the sink is closed
	done  sync.WaitGroup
}

// Listen opens a sink on all addresses of a host.
func Listen(h *lab.Host, port uint16) (*Sink, error) {
	s := &Sink{conns: map[net.Conn]bool{}}
	at := fmt.Sprintf("[::]:%d", port)
	var err error
	if s.listener, err = h.Listen("tcp", at); err != nil {
		return nil, err
	}
	if s.packets, err = h.ListenPacket("udp", at); err != nil {
		return nil, errors.Join(err, s.listener.Close())
	}
	s.done.Go(s.accept)
	s.done.Go(s.receive)
	return s, nil
}

// Received is the number of payload bytes received by TCP and by UDP.
func (s *Sink) Received() (tcp, udp uint64) { return s.tcp.Load(), s.udp.Load() }

// Close closes it, with its connections.
func (s *Sink) Close() error {
	err := errors.Join(s.listener.Close(), s.packets.Close())
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.done.Wait()
	return err
}

func (s *Sink) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.conns == nil {
			c.Close()
		} else {
			s.conns[c] = true
			s.done.Go(func() { s.drain(c) })
		}
		s.mu.Unlock()
	}
}

func (s *Sink) drain(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(counting{&s.tcp}, c) // the sender decides when it ends
}

type counting struct{ n *atomic.Uint64 }

func (c counting) Write(b []byte) (int, error) {
	c.n.Add(uint64(len(b)))
	return len(b), nil
}

func (s *Sink) receive() {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := s.packets.ReadFrom(buf)
		if err != nil {
			return
		}
		s.udp.Add(uint64(n))
	}
}

// TCP sends through this number of connections from a host until ctx ends. It retries
// connections that cannot be opened.
func TCP(ctx context.Context, h *lab.Host, to netip.AddrPort, connections int) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := tcp(ctx, h, to); err != nil && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
}

func tcp(ctx context.Context, h *lab.Host, to netip.AddrPort) error {
	c, err := h.Dial(ctx, netip.Addr{}, to)
	if err != nil {
		return err
	}
	defer c.Close()
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // data that is still queued at the end would disturb the next measurement
	}
	defer context.AfterFunc(ctx, func() { c.SetWriteDeadline(time.Unix(1, 0)) })()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = c.Write(block)
	}
	return err
}

// Datagram is the payload size of UDP datagrams: with IPv4 headers a full frame.
const Datagram = 1472

// UDP sends datagrams from a host until ctx ends: at this rate of payload in bit/s, or,
// for 0, as fast as possible.
func UDP(ctx context.Context, h *lab.Host, to netip.AddrPort, rate uint64) error {
	var c net.Conn
	err := h.Do(func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetWriteDeadline(time.Unix(1, 0)) })()
	block := make([]byte, Datagram)
	for begun, sent := time.Now(), uint64(0); ctx.Err() == nil; {
		if ahead := time.Duration(0); rate > 0 {
			ahead = time.Duration(sent*8*uint64(time.Second)/rate) - time.Since(begun)
			if ahead > time.Millisecond {
				time.Sleep(ahead)
			}
		}
		_, err := c.Write(block)
		sent += Datagram
		if err != nil && !passing(err) && ctx.Err() == nil {
			return fmt.Errorf("UDP from %s to %s: %w", h.Name(), to, err)
		}
	}
	return nil
}

// passing reports errors of one datagram that may not affect the next: a full queue, a
// program that dropped it, no listener yet.
func passing(err error) bool {
	return errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ECONNREFUSED) ||
		errors.Is(err, unix.EHOSTUNREACH)
}
