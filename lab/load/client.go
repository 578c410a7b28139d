package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Dial opens a TCP connection from one of the client's addresses, or from any for the
// zero Addr. lab.Host.Dial is one.
type Dial func(ctx context.Context, local netip.Addr, remote netip.AddrPort) (net.Conn, error)

// Config configures a Client.
type Config struct {
	Dial   Dial
	Target netip.AddrPort
	// Locals are local addresses, used in rotation; empty for any.
	Locals []netip.Addr
	// KeepAlive is the number of connections that stay open, each with one request after
	// the other; KeepAliveRate is the total number of their requests per second. A
	// connection that ends is opened again with the next request.
	KeepAlive     int
	KeepAliveRate float64
	// OneShotRate is the number of requests per second with their own connection.
	OneShotRate float64
	// Path of the requests; the default is "/".
	Path string
	// Timeout of a request, including the connection; 0 means 5 s. The kernel retransmits
	// a lost SYN after 1 and 3 s: a request that succeeds that way has not failed, but
	// its latency shows it.
	Timeout time.Duration
	// MaxInFlight limits the concurrent one-connection requests; 0 means 500.
	MaxInFlight int
	// MaxRequests ends the load; 0 means no limit. Start's context limits the time.
	MaxRequests uint64
}

// Client makes requests and counts. Its methods are safe for concurrent use.
type Client struct {
	cfg     Config
	request [2][]byte // indexed by closes
	begun   time.Time
	stop    chan struct{} // no new requests
	abort   context.Context
	workers sync.WaitGroup
	started atomic.Uint64
	turn    atomic.Uint64 // index into Locals
	flights atomic.Int64

	mu       sync.Mutex
	stopped  bool
	total    Counts
	bins     []Bin
	oneShots map[*time.Time]bool // start times of pending requests
	kept     []time.Time         // start time of each keep-alive connection's last completed request
}

// Mark is a moment in a client's count.
type Mark struct{ counts Counts }

// Start starts the load. When ctx ends, everything ends immediately, and pending requests
// are not counted; Stop lets them end.
func Start(ctx context.Context, cfg Config) (*Client, error) {
	switch {
	case cfg.Dial == nil || !cfg.Target.IsValid():
		return nil, errors.New("load: Dial and Target must be given")
	case cfg.KeepAlive < 0 || cfg.KeepAliveRate < 0 || cfg.OneShotRate < 0:
		return nil, errors.New("load: a rate or number is negative")
	case (cfg.KeepAlive == 0) != (cfg.KeepAliveRate == 0):
		return nil, errors.New("load: KeepAlive and KeepAliveRate need each other")
	}
	if cfg.Path == "" {
		cfg.Path = "/"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 500
	}
	c := &Client{
		cfg: cfg, begun: time.Now(), stop: make(chan struct{}), abort: ctx, total: newCounts(),
		oneShots: map[*time.Time]bool{}, kept: make([]time.Time, cfg.KeepAlive),
	}
	head := "GET " + cfg.Path + " HTTP/1.1\r\nHost: " + cfg.Target.String() + "\r\nUser-Agent: fairlead-load\r\n"
	c.request = [2][]byte{[]byte(head + "\r\n"), []byte(head + "Connection: close\r\n\r\n")}
	for i := range cfg.KeepAlive {
		c.workers.Go(func() { c.keepAlive(i) })
	}
	if cfg.OneShotRate > 0 {
		c.workers.Go(c.oneShotPacer)
	}
	return c, nil
}

// Began is the start time of the load, and of the time series.
func (c *Client) Began() time.Time { return c.begun }

// Stop makes no new requests, waits for pending ones, and closes all connections.
func (c *Client) Stop() {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.stop)
	}
	c.mu.Unlock()
	c.workers.Wait()
}

// Total is everything counted so far.
func (c *Client) Total() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.clone()
}

// Mark returns a mark of this moment.
func (c *Client) Mark() Mark { return Mark{c.Total()} }

// Since is what was counted since a mark. For the full effect of an event, call Settle
// first: affected requests may still be pending.
func (c *Client) Since(m Mark) Counts { return c.Between(m, c.Mark()) }

// Between is what was counted between two marks.
func (c *Client) Between(from, to Mark) Counts { return to.counts.minus(&from.counts) }

// Series is the time series since Began; its last bin may still grow.
func (c *Client) Series() []Bin {
	c.mu.Lock()
	defer c.mu.Unlock()
	bins := make([]Bin, len(c.bins))
	for i, b := range c.bins {
		bins[i] = b
		bins[i].PerServer = make(map[string]uint32, len(b.PerServer))
		for k, n := range b.PerServer {
			bins[i].PerServer[k] = n
		}
	}
	return bins
}

// Settle waits until every request that is pending now has ended and every keep-alive
// connection has made one more, so that connections that broke while idle are detected.
func (c *Client) Settle(ctx context.Context) error {
	since := time.Now()
	for !c.settled(since) {
		select {
		case <-c.stop:
			return nil
		case <-c.abort.Done():
			return c.abort.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (c *Client) settled(since time.Time) bool {
	ended := c.ended()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, began := range c.kept {
		if began.Before(since) && !ended {
			return false
		}
	}
	for began := range c.oneShots {
		if began.Before(since) {
			return false
		}
	}
	return true
}

// ended reports whether no further request may begin.
func (c *Client) ended() bool {
	select {
	case <-c.stop:
		return true
	case <-c.abort.Done():
		return true
	default:
		return c.cfg.MaxRequests != 0 && c.started.Load() >= c.cfg.MaxRequests
	}
}

// begin takes one request out of MaxRequests.
func (c *Client) begin() bool {
	n := c.started.Add(1)
	return c.cfg.MaxRequests == 0 || n <= c.cfg.MaxRequests
}

// pause waits, unless the load ends.
func (c *Client) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !c.ended()
	case <-c.stop:
	case <-c.abort.Done():
	}
	return false
}

// keepAlive runs one kept connection. Requests that are late, because the previous one
// took long, are left out, not made up for.
func (c *Client) keepAlive(i int) {
	interval := time.Duration(float64(c.cfg.KeepAlive) / c.cfg.KeepAliveRate * float64(time.Second))
	local := c.local()
	var conn *connection
	defer func() { conn.close() }()
	next := time.Now().Add(time.Duration(rand.Int64N(int64(interval) + 1)))
	for c.pause(time.Until(next)) && c.begin() {
		next = next.Add(interval)
		if now := time.Now(); next.Before(now) {
			next = now
		}
		began := time.Now()
		conn = c.exchange(conn, local, began, false)
		c.mu.Lock()
		c.kept[i] = began
		c.mu.Unlock()
	}
}

// tick is how often due one-connection requests are started.
const tick = 5 * time.Millisecond

func (c *Client) oneShotPacer() {
	due := 0.0
	for last := time.Now(); c.pause(tick); {
		now := time.Now()
		due += now.Sub(last).Seconds() * c.cfg.OneShotRate
		last = now
		for ; due >= 1; due-- {
			if c.flights.Load() >= int64(c.cfg.MaxInFlight) {
				c.count(func(t *Counts, _ *Bin) { t.Skipped++ })
				continue
			}
			if !c.begin() {
				return
			}
			c.flights.Add(1)
			c.workers.Go(c.oneShot)
		}
	}
}

func (c *Client) oneShot() {
	defer c.flights.Add(-1)
	began := time.Now()
	c.mu.Lock()
	c.oneShots[&began] = true
	c.mu.Unlock()
	c.exchange(nil, c.local(), began, true).close()
	c.mu.Lock()
	delete(c.oneShots, &began)
	c.mu.Unlock()
}

func (c *Client) local() netip.Addr {
	if len(c.cfg.Locals) == 0 {
		return netip.Addr{}
	}
	return c.cfg.Locals[c.turn.Add(1)%uint64(len(c.cfg.Locals))]
}

// count changes the totals and the current bin, unless the load was aborted.
func (c *Client) count(f func(*Counts, *Bin)) {
	if c.abort.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := int(time.Since(c.begun) / BinLength); len(c.bins) <= n; {
		c.bins = append(c.bins, Bin{PerServer: map[string]uint32{}})
	}
	f(&c.total, &c.bins[len(c.bins)-1])
}
