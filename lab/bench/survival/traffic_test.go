package survival

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/testkit"
)

// patience is the timeout for anything on a busy machine.
const patience = 30 * time.Second

// place is a listener on loopback whose connections a test can break.
type place struct {
	ln net.Listener

	mu    sync.Mutex
	conns []*net.TCPConn
}

func (p *place) Accept() (net.Conn, error) {
	c, err := p.ln.Accept()
	if err == nil {
		p.mu.Lock()
		p.conns = append(p.conns, c.(*net.TCPConn))
		p.mu.Unlock()
	}
	return c, err
}
func (p *place) Close() error   { return p.ln.Close() }
func (p *place) Addr() net.Addr { return p.ln.Addr() }

// each applies f to all current connections.
func (p *place) each(f func(*net.TCPConn)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for _, c := range p.conns {
		f(c)
	}
	p.conns = nil
	return n
}

// startTraffic opens n connections to the server serve.
func startTraffic(t *testing.T, n int, limit time.Duration, serve func(net.Listener)) (*traffic, *place) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{ln: ln}
	go serve(p)
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{
		dial: func(ctx context.Context, _ netip.Addr, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to.String())
		},
		target: ln.Addr().(*net.TCPAddr).AddrPort(), locals: []netip.Addr{{}}, every: 20 * time.Millisecond, timeout: limit,
	}
	t.Cleanup(func() {
		cancel()
		tr.wait()
		ln.Close()
	})
	if err := tr.start(ctx, n, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	return tr, p
}

func TestTrafficFlowsAndIsCounted(t *testing.T) {
	tr, p := startTraffic(t, 40, patience, func(ln net.Listener) { Serve(ln, 7) })
	testkit.Eventually(t, patience, func() error {
		if n := tr.exchanges.Load(); n < 400 {
			return io.ErrShortWrite
		}
		return nil
	})
	if b := tr.broken(); len(b) > 0 || tr.open.Load() != 40 || tr.first[7] != 40 {
		t.Fatalf("%d broken: %v; %d open, %v", len(b), b, tr.open.Load(), tr.first)
	}
	// Every reset connection counts once, and is opened again.
	hurt := p.each(func(c *net.TCPConn) { c.SetLinger(0); c.Close() })
	testkit.Eventually(t, patience, func() error {
		if len(tr.broken()) < hurt || tr.open.Load() < 40 {
			return io.ErrShortWrite
		}
		return nil
	})
	for _, b := range tr.broken() {
		if b.Reason != reset || b.Server != 7 || b.At < b.Sent || !b.Client.IsValid() {
			t.Errorf("%+v", b)
		}
	}
	if n := len(tr.broken()); n != hurt {
		t.Errorf("%d broken, want %d", n, hurt)
	}
}

// answerOnce answers the first request of each connection, and then calls then.
func answerOnce(then func(net.Conn)) func(net.Listener) {
	return func(ln net.Listener) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var in [requestBytes]byte
				var out [answerBytes]byte
				if _, err := io.ReadFull(c, in[:]); err != nil {
					return
				}
				answer{readRequest(in[:]), 1, 1}.put(out[:])
				c.Write(out[:])
				then(c)
			}()
		}
	}
}

// wrongAnswer answers the next request with one modification.
func wrongAnswer(change func(*answer)) func(net.Conn) {
	return func(c net.Conn) {
		var in [requestBytes]byte
		var out [answerBytes]byte
		if _, err := io.ReadFull(c, in[:]); err != nil {
			return
		}
		a := answer{readRequest(in[:]), 1, 2}
		change(&a)
		a.put(out[:])
		c.Write(out[:])
		io.Copy(io.Discard, c)
	}
}

func TestEveryEndHasItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		then func(net.Conn)
		want string
	}{
		"closed":             {func(net.Conn) {}, closed},
		"silent":             {func(c net.Conn) { io.Copy(io.Discard, c) }, timeout},
		"another connection": {wrongAnswer(func(a *answer) { a.connection++ }), wrong},
		"another request":    {wrongAnswer(func(a *answer) { a.sequence-- }), wrong},
		"another server":     {wrongAnswer(func(a *answer) { a.server = 2 }), wrong},
		"one lost":           {wrongAnswer(func(a *answer) { a.answered = 3 }), wrong},
		"unasked": {func(c net.Conn) {
			var unasked [8]byte
			binary.BigEndian.PutUint64(unasked[:], 1)
			c.Write(unasked[:])
			io.Copy(io.Discard, c)
		}, wrong},
	} {
		t.Run(name, func(t *testing.T) {
			limit := patience
			if c.want == timeout {
				limit = 3 * time.Second // even a busy machine has sent the first answer by then
			}
			tr, _ := startTraffic(t, 1, limit, answerOnce(c.then))
			testkit.Eventually(t, patience, func() error {
				if len(tr.broken()) == 0 {
					return io.ErrShortWrite
				}
				return nil
			})
			if b := tr.broken()[0]; b.Reason != c.want || b.Server != 1 {
				t.Errorf("%+v, want %s", b, c.want)
			}
		})
	}
}

// A connection that reaches the end of its lifetime does not count as broken.
func TestConnectionsEndWhenTheyHaveLived(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{ln: ln}
	go Serve(p, 1)
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{
		dial: func(ctx context.Context, _ netip.Addr, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to.String())
		},
		target: ln.Addr().(*net.TCPAddr).AddrPort(), locals: []netip.Addr{{}}, every: 10 * time.Millisecond, timeout: patience, life: 100 * time.Millisecond,
	}
	if err := tr.start(ctx, 5, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.conns) < 20 {
			return io.ErrShortWrite
		}
		return nil
	})
	cancel()
	tr.wait()
	ln.Close()
	if b := tr.broken(); len(b) > 0 {
		t.Errorf("broken: %v", b)
	}
}
