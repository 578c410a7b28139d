package survival

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench"
)

// Reasons why a connection broke.
const (
	reset   = "reset"
	timeout = "timeout"
	closed  = "closed by the server"
	wrong   = "wrong answer"
)

// Break is the unexpected end of a connection. Times count from the start of the
// measurement.
type Break struct {
	// At is when the break was noticed. Sent is when the last request was sent. A
	// connection can also break between two requests.
	At, Sent time.Duration
	Reason   string
	Client   netip.AddrPort
	// Server is the number of the backend that answered so far.
	Server uint64
}

// traffic is many connections that stay open, with periodic requests on each. A
// connection that breaks is counted and opened again.
type traffic struct {
	dial    func(context.Context, netip.Addr, netip.AddrPort) (net.Conn, error)
	target  netip.AddrPort
	locals  []netip.Addr
	every   time.Duration // between two requests of a connection
	timeout time.Duration // of a response
	life    time.Duration // approximate lifetime of a connection; 0: unlimited

	began     time.Time
	open      atomic.Int64
	ready     atomic.Int64 // connections that have been open once
	exchanges atomic.Uint64
	unopened  atomic.Uint64 // failed attempts to open a connection
	workers   sync.WaitGroup

	mu      sync.Mutex
	breaks  []Break
	slowest map[time.Duration]time.Duration // slowest response, by the second of its request
	first   map[uint64]int                  // connections by the first backend that answered
}

// dialers limits how many connections are opened concurrently.
const dialers = 64

// start opens n connections and returns when each has received an answer.
func (t *traffic) start(ctx context.Context, n int, progress func(open int64)) error {
	t.began = time.Now()
	t.slowest, t.first = map[time.Duration]time.Duration{}, map[uint64]int{}
	slots := make(chan struct{}, dialers)
	for i := range n {
		t.workers.Go(func() { t.connection(ctx, uint64(i), slots) })
	}
	for waited := 0; t.ready.Load() < int64(n); waited++ {
		if time.Since(t.began) > openLimit {
			return fmt.Errorf("only %d of %d connections opened within %s (%d attempts failed)",
				t.ready.Load(), n, openLimit, t.unopened.Load())
		}
		if err := bench.Pause(ctx, openPace); err != nil {
			return err
		}
		if waited%10 == 9 {
			progress(t.ready.Load())
		}
	}
	return nil
}

// openLimit is the time limit for opening all connections, openPace the interval at which
// they are counted.
const (
	openLimit = 2 * time.Minute
	openPace  = 100 * time.Millisecond
)

// connection maintains the connection with this number until ctx ends.
func (t *traffic) connection(ctx context.Context, number uint64, slots chan struct{}) {
	var ready sync.Once
	for ctx.Err() == nil {
		slots <- struct{}{}
		conn, err := t.dialOne(ctx, number)
		if err != nil {
			<-slots
			if ctx.Err() == nil {
				t.unopened.Add(1)
			}
			bench.Pause(ctx, t.every)
			continue
		}
		first := true
		answered := func(server uint64) {
			if first {
				first = false
				<-slots
				t.open.Add(1)
				ready.Do(func() { t.ready.Add(1) })
				t.mu.Lock()
				t.first[server]++
				t.mu.Unlock()
			}
		}
		t.talk(ctx, conn, number, answered)
		if first {
			<-slots
		} else {
			t.open.Add(-1)
		}
	}
}

func (t *traffic) dialOne(ctx context.Context, number uint64) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.dial(ctx, t.locals[number%uint64(len(t.locals))], t.target)
}

// talk sends one request after the other until the connection breaks, reaches the end of
// its lifetime, or ctx ends. Between requests it reads, so that it notices a reset
// immediately.
func (t *traffic) talk(ctx context.Context, conn net.Conn, number uint64, answered func(server uint64)) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var out [requestBytes]byte
	var in [answerBytes]byte
	c := Break{Client: conn.LocalAddr().(*net.TCPAddr).AddrPort()}
	end := time.Now().Add(t.life/2 + jitter(t.life))
	broke := func(reason string) {
		if ctx.Err() != nil {
			return
		}
		c.At, c.Reason = time.Since(t.began), reason
		t.mu.Lock()
		t.breaks = append(t.breaks, c)
		t.mu.Unlock()
	}
	next := time.Now().Add(jitter(t.every))
	for sequence := uint64(1); ; sequence++ {
		ask := request{number, sequence}
		ask.put(out[:])
		sent := time.Now()
		c.Sent = sent.Sub(t.began)
		conn.SetDeadline(sent.Add(t.timeout))
		if _, err := conn.Write(out[:]); err != nil {
			broke(reason(err))
			return
		}
		if _, err := io.ReadFull(conn, in[:]); err != nil {
			broke(reason(err))
			return
		}
		a := readAnswer(in[:])
		if a.request != ask || a.answered != sequence || sequence > 1 && a.server != c.Server {
			broke(wrong)
			return
		}
		c.Server = a.server
		answered(a.server)
		t.count(sent)
		if t.life > 0 && time.Now().After(end) {
			return
		}
		if next = next.Add(t.every); time.Until(next) < 0 {
			next = time.Now()
		}
		conn.SetReadDeadline(next)
		if n, err := conn.Read(in[:1]); n > 0 {
			broke(wrong)
			return
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.Sent = time.Since(t.began)
			broke(reason(err))
			return
		}
	}
}

// count records an answer to a request sent at the given time.
func (t *traffic) count(sent time.Time) {
	t.exchanges.Add(1)
	took, second := time.Since(sent), sent.Sub(t.began).Truncate(time.Second)
	t.mu.Lock()
	defer t.mu.Unlock()
	if took > t.slowest[second] {
		t.slowest[second] = took
	}
}

// wait returns when all connections have ended. They end when ctx does.
func (t *traffic) wait() { t.workers.Wait() }

// broken returns the breaks so far.
func (t *traffic) broken() []Break {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Break(nil), t.breaks...)
}

func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// reason returns the reason for an error.
func reason(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return timeout
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return closed
	}
	return err.Error()
}
