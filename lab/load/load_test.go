package load_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	long   = 30 * time.Second
	target = "10.0.0.2:80"
)

// newLab is a client and a server, with a link that can be cut.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	return labtest.Build(t, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "client"}, {Name: "server"}},
		Links: []lab.Link{{
			A: lab.At("client", "eth0", "10.0.0.10/24", "10.0.0.11/24", "10.0.0.12/24"),
			B: lab.At("server", "eth0", "10.0.0.2/24"), Cuttable: true,
		}},
	})
}

func listen(t *testing.T, l *lab.Lab) net.Listener {
	t.Helper()
	ln, err := l.Host("server").Listen("tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func serve(t *testing.T, l *lab.Lab, name string) *load.Server {
	t.Helper()
	s := load.Serve(name, listen(t, l))
	t.Cleanup(func() { s.Kill() })
	return s
}

// run starts a load with defaults for the rest of the config, and stops it in the end.
func run(t *testing.T, l *lab.Lab, cfg load.Config) *load.Client {
	t.Helper()
	cfg.Dial, cfg.Target = l.Host("client").Dial, netip.MustParseAddrPort(target)
	if cfg.Timeout == 0 {
		cfg.Timeout = long // a busy machine is not a failure
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := load.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		c.Stop()
	})
	return c
}

// until waits for a count.
func until(t *testing.T, c *load.Client, what string, reached func(load.Counts) bool) {
	t.Helper()
	testkit.Eventually(t, long, func() error {
		if n := c.Total(); !reached(n) {
			return fmt.Errorf("no %s yet: %+v", what, brief(n))
		}
		return nil
	})
}

// brief is everything except the histogram.
func brief(n load.Counts) load.Counts {
	n.Latency = load.Histogram{}
	return n
}

func requests(n uint64) func(load.Counts) bool {
	return func(c load.Counts) bool { return c.Requests >= n }
}

func TestCountsAreWhatTheServerSaw(t *testing.T) {
	l := newLab(t)
	s := serve(t, l, "web-1")
	c := run(t, l, load.Config{KeepAlive: 4, KeepAliveRate: 200, OneShotRate: 100})
	until(t, c, "300 requests", requests(300))
	c.Stop()
	n := c.Total()
	if n.Requests != s.Requests() || n.PerServer["web-1"] != n.Requests || n.Latency.Count() != n.Requests {
		t.Errorf("counted %+v with %d latencies, the server saw %d", brief(n), n.Latency.Count(), s.Requests())
	}
	if n.Failed+n.BrokenConnections+n.Closed+n.Skipped != 0 || len(n.Reasons) != 0 {
		t.Errorf("something went wrong: %+v", brief(n))
	}
	if oneShots := n.Connections - 4; n.Connections < 4 || oneShots < 20 || oneShots > n.Requests-20 {
		t.Errorf("%d connections for %d requests: want four persistent ones and both kinds of load", n.Connections, n.Requests)
	}
	var inBins uint64
	for _, b := range c.Series() {
		inBins += uint64(b.PerServer["web-1"])
	}
	if inBins != n.Requests {
		t.Errorf("the time series has %d requests of %d", inBins, n.Requests)
	}
	testkit.Eventually(t, long, func() error {
		if open := s.Connections(); open != 0 {
			return fmt.Errorf("%d connections are open after Stop", open)
		}
		return nil
	})
}

func TestRatesAndBounds(t *testing.T) {
	l := newLab(t)
	s := serve(t, l, "web-1")
	c := run(t, l, load.Config{KeepAlive: 2, KeepAliveRate: 500, OneShotRate: 500, MaxRequests: 100})
	until(t, c, "100 requests", requests(100))
	time.Sleep(100 * time.Millisecond) // more of them would arrive now
	if n := c.Total(); n.Requests != 100 || s.Requests() != 100 {
		t.Errorf("%d requests, %d at the server; bound is 100", n.Requests, s.Requests())
	}

	slow := run(t, l, load.Config{KeepAlive: 5, KeepAliveRate: 50, OneShotRate: 50})
	until(t, slow, "100 requests", requests(100))
	if took := time.Since(slow.Began()); took < 700*time.Millisecond {
		t.Errorf("100 requests at 100 a second took %v", took)
	}
}

func TestLocalsTakeTurns(t *testing.T) {
	l := newLab(t)
	var mu sync.Mutex
	seen := map[string]int{}
	script(t, l, func(c net.Conn, r *bufio.Reader) {
		mu.Lock()
		seen[c.RemoteAddr().(*net.TCPAddr).IP.String()]++
		mu.Unlock()
		answerAll(c, r, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	locals := []netip.Addr{netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.12")}
	c := run(t, l, load.Config{OneShotRate: 200, MaxRequests: 20, Locals: locals})
	until(t, c, "20 requests", requests(20))
	mu.Lock()
	defer mu.Unlock()
	if want := map[string]int{"10.0.0.10": 10, "10.0.0.12": 10}; !maps.Equal(seen, want) {
		t.Errorf("connections by address: %v, want %v", seen, want)
	}
}

// script serves connections with a test's own code.
func script(t *testing.T, l *lab.Lab, serve func(net.Conn, *bufio.Reader)) {
	t.Helper()
	ln := listen(t, l)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
}

// answerAll answers requests until the client closes the connection.
func answerAll(c net.Conn, r *bufio.Reader, answer string) {
	for readRequest(r) && write(c, answer) {
	}
}

func readRequest(r *bufio.Reader) bool {
	_, err := http.ReadRequest(r)
	return err == nil
}

func write(c net.Conn, s string) bool {
	_, err := io.WriteString(c, s)
	return err == nil
}

func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

const good = "HTTP/1.1 200 OK\r\nX-Server: s\r\nContent-Length: 2\r\n\r\nok"

// ends are what a server does to a request, and how that must be counted.
var ends = map[string]struct {
	serve                  func(net.Conn, *bufio.Reader)
	failed, broken, closed bool
	reason                 string
}{
	"good": {func(c net.Conn, r *bufio.Reader) { answerAll(c, r, good) }, false, false, false, ""},
	"reset instead of an answer": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		reset(c)
	}, true, true, false, "reset"},
	"closed instead of an answer": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
	}, true, true, false, "closed early"},
	"half an answer": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		write(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
	}, true, true, false, "closed early"},
	"silence": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		r.ReadByte() // until the client gives up
	}, true, true, false, "timeout"},
	"an error status": {func(c net.Conn, r *bufio.Reader) {
		answerAll(c, r, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
	}, true, false, false, "status 503"},
	"closed between requests": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		write(c, good)
	}, false, false, true, ""},
	"closed as announced": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		write(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}, false, false, true, ""},
	"reset between requests": {func(c net.Conn, r *bufio.Reader) {
		readRequest(r)
		write(c, good)
		time.Sleep(500 * time.Millisecond) // the answer must be read first
		reset(c)
	}, false, true, false, "idle: reset"},
}

func TestEveryEndIsCountedForWhatItIs(t *testing.T) {
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			script(t, l, test.serve)
			cfg := load.Config{KeepAlive: 1, KeepAliveRate: 4, MaxRequests: 3}
			if test.reason == "timeout" {
				cfg.Timeout = 200 * time.Millisecond
			}
			if strings.HasSuffix(name, "between requests") {
				cfg.KeepAliveRate = 0.5 // so late that even a busy machine has closed the connection before
			}
			c := run(t, l, cfg)
			until(t, c, "3 requests", requests(3))
			n := c.Total()
			if (n.Failed == 3) != test.failed || (n.Failed != 0) != test.failed {
				t.Errorf("%d failed: %+v", n.Failed, brief(n))
			}
			if (n.BrokenConnections >= 2) != test.broken || (n.BrokenConnections != 0) != test.broken {
				t.Errorf("%d broken: %+v", n.BrokenConnections, brief(n))
			}
			if (n.Closed >= 2) != test.closed || (n.Closed != 0) != test.closed {
				t.Errorf("%d closed: %+v", n.Closed, brief(n))
			}
			want := []string{test.reason}
			if test.reason == "" {
				want = nil
			}
			if got := slices.Collect(maps.Keys(n.Reasons)); !slices.Equal(got, want) {
				t.Errorf("reasons are %v, want %v", n.Reasons, want)
			}
		})
	}
}

func TestKilledServerCosts(t *testing.T) {
	l := newLab(t)
	s := serve(t, l, "web-1")
	kept, oneShots := run(t, l, load.Config{KeepAlive: 5, KeepAliveRate: 100}), run(t, l, load.Config{OneShotRate: 50})
	both := map[*load.Client]load.Mark{}
	for _, c := range []*load.Client{kept, oneShots} {
		until(t, c, "50 requests", requests(50))
		both[c] = c.Mark()
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for c, mark := range both {
		until(t, c, "refusals", func(n load.Counts) bool { return n.Reasons["connect: refused"] > 20 })
		if err := c.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := c.Since(mark)
		if n.Failed < 20 || n.Failed+n.PerServer["web-1"] != n.Requests {
			t.Errorf("good and failed are not all: %+v", brief(n))
		}
		if c == kept && n.BrokenConnections != 5 {
			t.Errorf("five persistent connections were closed: %+v", brief(n))
		}
	}

	serve(t, l, "web-2")
	for c := range both {
		mark := c.Mark()
		until(t, c, "answers of the new server", func(n load.Counts) bool { return n.PerServer["web-2"] > 50 })
		if n := c.Since(mark); n.BrokenConnections != 0 {
			t.Errorf("the new server broke connections: %+v", brief(n))
		}
	}
}

func TestDrainAndStopCostNothing(t *testing.T) {
	l := newLab(t)
	s := serve(t, l, "web-1")
	c := run(t, l, load.Config{KeepAlive: 5, KeepAliveRate: 100})
	until(t, c, "50 requests", requests(50))
	s.Drain()
	until(t, c, "closed connections", func(n load.Counts) bool { return n.Closed > 10 })
	if n := c.Total(); n.Failed+n.BrokenConnections != 0 {
		t.Errorf("draining cost %+v", brief(n))
	}
	c.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if n := c.Total(); n.Failed+n.BrokenConnections != 0 {
		t.Errorf("stopping cost %+v", brief(n))
	}
}

func TestStopGivesUpWithItsContext(t *testing.T) {
	l := newLab(t)
	s := serve(t, l, "web-1")
	conn, err := l.Host("client").Dial(t.Context(), netip.Addr{}, netip.MustParseAddrPort(target))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testkit.Eventually(t, long, func() error {
		if s.Connections() != 1 {
			return fmt.Errorf("%d connections", s.Connections())
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); err == nil {
		t.Error("Stop gives nil with a connection open")
	}
	conn.SetReadDeadline(time.Now().Add(long))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still there")
	}
}

// A short cut is seen as latency, a long one as failures.
func TestCutLinkShowsAsLatencyOrFailure(t *testing.T) {
	l := newLab(t)
	serve(t, l, "web-1")
	patient := run(t, l, load.Config{KeepAlive: 3, KeepAliveRate: 60, OneShotRate: 30})
	hasty := run(t, l, load.Config{KeepAlive: 3, KeepAliveRate: 60, OneShotRate: 30, Timeout: 500 * time.Millisecond})
	until(t, patient, "50 requests", requests(50))
	until(t, hasty, "50 requests", requests(50))
	marks := []load.Mark{patient.Mark(), hasty.Mark()}
	if err := l.Cut("server", "eth0"); err != nil {
		t.Fatal(err)
	}
	until(t, hasty, "failures", func(n load.Counts) bool {
		return n.Reasons["connect: timeout"] > 0 && n.BrokenConnections >= 3
	})
	if err := l.Restore("server", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := patient.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := patient.Since(marks[0])
	if n.Failed+n.BrokenConnections != 0 || n.Latency.Quantile(1) < 300*time.Millisecond {
		t.Errorf("with a long timeout: %+v, longest %v", brief(n), n.Latency.Quantile(1))
	}
	if n := hasty.Since(marks[1]); n.Failed < 4 || n.BrokenConnections < 3 {
		t.Errorf("with a short timeout: %+v", brief(n))
	}
}

func TestTooManyInFlightAreSkippedAndCounted(t *testing.T) {
	l := newLab(t)
	script(t, l, func(c net.Conn, r *bufio.Reader) { r.ReadString(0) })
	c := run(t, l, load.Config{OneShotRate: 500, MaxInFlight: 3})
	until(t, c, "skipped", func(n load.Counts) bool { return n.Skipped > 10 && n.Connections >= 3 })
	if n := c.Total(); n.Connections != 3 || n.Requests != 0 {
		t.Errorf("%+v", brief(n))
	}
}

func TestBigBodies(t *testing.T) {
	l := newLab(t)
	s := serve(t, l, "web-1")
	c := run(t, l, load.Config{KeepAlive: 2, KeepAliveRate: 20, OneShotRate: 10, Path: "/bytes/3000000", MaxRequests: 12})
	until(t, c, "12 requests", requests(12))
	if n := c.Total(); n.PerServer["web-1"] != 12 || s.Requests() != 12 {
		t.Errorf("%+v", brief(n))
	}
}

// The end of the context ends everything immediately, and the requests that it cuts off
// are not failures.
func TestAbort(t *testing.T) {
	l := newLab(t)
	script(t, l, func(c net.Conn, r *bufio.Reader) { r.ReadString(0) })
	ctx, cancel := context.WithCancel(t.Context())
	c, err := load.Start(ctx, load.Config{
		Dial: l.Host("client").Dial, Target: netip.MustParseAddrPort(target), Timeout: time.Hour,
		KeepAlive: 3, KeepAliveRate: 300, OneShotRate: 300,
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, c, "connections", func(n load.Counts) bool { return n.Connections > 5 })
	cancel()
	ended := make(chan struct{})
	go func() {
		c.Stop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(long):
		t.Fatal("the load does not end")
	}
	if n := c.Total(); n.Requests != 0 {
		t.Errorf("%+v", brief(n))
	}
}

func TestStartRefuses(t *testing.T) {
	dial := (&lab.Host{}).Dial
	at := netip.MustParseAddrPort(target)
	for _, cfg := range []load.Config{
		{},
		{Dial: dial},
		{Dial: dial, Target: at, OneShotRate: -1},
		{Dial: dial, Target: at, KeepAlive: 3},
		{Dial: dial, Target: at, KeepAliveRate: 3},
	} {
		if _, err := load.Start(t.Context(), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
