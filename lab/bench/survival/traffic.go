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

// Why a connection broke.
const (
	reset   = "reset"
	timeout = "timeout"
	closed  = "closed by the server"
	wrong   = "wrong answer"
)

// Break is the end of a connection that should have lived on. Times count
// from the beginning of the measurement.
type Break struct {
	// At is when it was noticed, Sent when the request went out that got no
	// answer; a connection may also break between two requests.
	At, Sent time.Duration
	Reason   string
	Client   netip.AddrPort
	// Server is the number of the one that answered so far.
	Server uint64
}

// traffic is many connections that stay open, with a request on each every so
// often. One that breaks is counted and opened anew.
type traffic struct {
	dial    func(context.Context, netip.Addr, netip.AddrPort) (net.Conn, error)
	target  netip.AddrPort
	locals  []netip.Addr
	every   time.Duration // between two requests of a connection
	timeout time.Duration // of an answer
	life    time.Duration // of a connection, about; 0: for ever

	began     time.Time
	open      atomic.Int64
	ready     atomic.Int64 // those that have been open once
	exchanges atomic.Uint64
	unopened  atomic.Uint64 // attempts to open one that failed
	workers   sync.WaitGroup

	mu      sync.Mutex
	breaks  []Break
	slowest map[time.Duration]time.Duration // answer, by the second it was asked for
	first   map[uint64]int                  // connections by the server that they began with
}

// dialers bounds how many connections are opened at the same time.
const dialers = 64

// start opens n connections and returns when all have been answered once.
func (t *traffic) start(ctx context.Context, n int, progress func(open int64)) error {
	t.began = time.Now()
	t.slowest, t.first = map[time.Duration]time.Duration{}, map[uint64]int{}
	slots := make(chan struct{}, dialers)
	for i := range n {
		t.workers.Go(func() { t.connection(ctx, uint64(i), slots) })
	}
	for waited := 0; t.ready.Load() < int64(n); waited++ {
		if time.Since(t.began) > openLimit {
			return fmt.Errorf("only %d of %d connections could be opened within %s (%d attempts failed)",
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

// openLimit is how long opening all connections may take, openPace how often
// they are counted.
const (
	openLimit = 2 * time.Minute
	openPace  = 100 * time.Millisecond
)

// connection keeps the connection of that number open until ctx ends.
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

// talk makes one request after the other until the connection breaks, has
// lived long enough, or ctx ends. While nothing is to be asked it reads, so
// that a reset is noticed when it comes.
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

// count notes an answer to what was sent then.
func (t *traffic) count(sent time.Time) {
	t.exchanges.Add(1)
	took, second := time.Since(sent), sent.Sub(t.began).Truncate(time.Second)
	t.mu.Lock()
	defer t.mu.Unlock()
	if took > t.slowest[second] {
		t.slowest[second] = took
	}
}

// wait returns when all connections have ended, which ctx makes them.
func (t *traffic) wait() { t.workers.Wait() }

// broken gives the breaks so far.
func (t *traffic) broken() []Break {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Break(nil), t.breaks...)
}

func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// reason names an error's cause.
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
