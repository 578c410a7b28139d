package probe_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/event"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/reconciler/probe"
)

// patience is the timeout for anything on a busy machine.
const patience = 30 * time.Second

func run(t *testing.T, events ...event.Recorder) *probe.Prober {
	t.Helper()
	p := probe.New(slog.New(slog.DiscardHandler))
	if len(events) > 0 {
		p.Events = events[0]
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// await waits until the target has the wanted result.
func await(t *testing.T, p *probe.Prober, target health.Target, state health.State, words string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got := p.Result(target)
		if got.State == state && strings.Contains(got.Error, words) && (words != "" || got.Error == "") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v: got %s, %q; want %s, %q", target.Addr, got.State, got.Error, state, words)
		}
	}
}

func check(kind service.CheckKind) service.HealthCheck {
	c := service.DefaultHealthCheck
	c.Kind, c.Interval, c.Timeout = kind, 50*time.Millisecond, 50*time.Millisecond
	return c
}

// patient returns a check with a timeout that is not reached even on a busy machine.
func patient(kind service.CheckKind) service.HealthCheck {
	c := check(kind)
	c.Timeout = patience
	return c
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// ownAddr has an address on which nobody else listens, so that a released port stays
// free.
const ownAddr = "127.77.0.1:0"

func addrOf(l net.Listener) netip.AddrPort { return netip.MustParseAddrPort(l.Addr().String()) }

func TestTCP(t *testing.T) {
	for _, host := range []string{ownAddr, "[::1]:0"} {
		p := run(t)
		l := listen(t, host)
		target := health.Target{Addr: addrOf(l), Check: patient(service.CheckTCP)}
		set(p, target)
		await(t, p, target, health.Up, "")
		l.Close()
		await(t, p, target, health.Down, "connection refused")
		listen(t, target.Addr.String())
		await(t, p, target, health.Up, "")
	}
}

// TestEvents records changes of health, but not that a new backend is up.
func TestEvents(t *testing.T) {
	recorded := make(chan string, 10)
	p := run(t, func(e event.Event) {
		recorded <- fmt.Sprintf("%s %s %.8s: %s -> %s: %v", e.Type, e.Object, e.Field, e.From, e.To, strings.Contains(e.Cause, "refused"))
	})
	l := listen(t, ownAddr)
	target := health.Target{Addr: addrOf(l), Check: patient(service.CheckTCP)}
	set(p, target)
	await(t, p, target, health.Up, "")
	l.Close()
	for _, want := range []string{"BackendUnhealthy Backend 127.77.0.1 tcp port: up -> down: true", "BackendHealthy Backend 127.77.0.1 tcp port: down -> up: false"} {
		select {
		case got := <-recorded:
			if got != want {
				t.Errorf("recorded %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%q is not recorded", want)
		}
		if l != nil {
			l = nil
			listen(t, target.Addr.String())
		}
	}
}

func TestNoneIsUpAtOnce(t *testing.T) {
	p := probe.New(slog.New(slog.DiscardHandler)) // not even running
	target := health.Target{Addr: netip.MustParseAddrPort("192.0.2.1:9"), Check: check(service.CheckNone)}
	set(p, target)
	if got := p.State(target); got != health.Up {
		t.Errorf("got %s, want up", got)
	}
	select {
	case <-p.Changed():
	default:
		t.Error("Changed says nothing")
	}
}

func TestHTTP(t *testing.T) {
	var hits atomic.Int32
	mux := http.NewServeMux()
	for code := range 600 {
		if code >= 200 {
			mux.HandleFunc(fmt.Sprintf("/%d", code), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		}
	}
	mux.HandleFunc("/host", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "www.example.org" || r.URL.RawQuery != "x=1" || r.Method != "GET" || !r.Close {
			w.WriteHeader(400)
		}
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/hit", http.StatusFound) })
	mux.HandleFunc("/hit", func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	addr := addrOf(srv.Listener)

	p := run(t)
	var targets []health.Target
	with := func(path, host string) health.Target {
		c := patient(service.CheckHTTP)
		c.Path, c.Host = path, host
		target := health.Target{Addr: addr, Check: c}
		targets = append(targets, target)
		return target
	}
	cases := []struct {
		target health.Target
		state  health.State
		words  string
	}{
		{with("/200", ""), health.Up, ""},
		{with("/204", ""), health.Up, ""},
		{with("/302", ""), health.Up, ""},
		{with("/399", ""), health.Up, ""},
		{with("/400", ""), health.Down, "HTTP 400, wanted 2xx or 3xx"},
		{with("/404", ""), health.Down, "HTTP 404, wanted 2xx or 3xx"},
		{with("/503", ""), health.Down, "HTTP 503, wanted 2xx or 3xx"},
		{with("/hints", ""), health.Down, "HTTP 503, wanted 2xx or 3xx"},
		{with("/host?x=1", "www.example.org"), health.Up, ""},
		{with("/host?x=1", ""), health.Down, "HTTP 400"},
		{with("/moved", ""), health.Up, ""},
		{with("/large", ""), health.Up, ""},
	}
	set(p, targets...)
	for _, c := range cases {
		await(t, p, c.target, c.state, c.words)
	}
	if hits.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestHTTPServerIsNoHTTPServer(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		words string
	}{
		"closes":          {func(c net.Conn) { readRequest(c); c.Close() }, "closed the connection without an HTTP answer"},
		"another tongue":  {func(c net.Conn) { readRequest(c); fmt.Fprint(c, "220 mail ESMTP\r\n"); c.Close() }, "malformed HTTP"},
		"half an answer":  {func(c net.Conn) { readRequest(c); fmt.Fprint(c, "HTTP/1.1 200 OK\r\nA: b"); c.Close() }, "without an HTTP answer"},
		"headers forever": {func(c net.Conn) { endless(c) }, "without an HTTP answer"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, ownAddr)
			go func() {
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					go c.serve(conn)
				}
			}()
			p := run(t)
			target := health.Target{Addr: addrOf(l), Check: patient(service.CheckHTTP)}
			set(p, target)
			await(t, p, target, health.Down, c.words)
		})
	}
}

// readRequest reads once, so that closing the connection afterwards does not reset it.
func readRequest(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }

func endless(c net.Conn) {
	defer c.Close()
	readRequest(c)
	_, err := fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
	for err == nil {
		_, err = fmt.Fprintf(c, "X: %s\r\n", strings.Repeat("y", 1000))
	}
}

// A backend that accepts connections but never responds is up for TCP and down for HTTP.
func TestTimeout(t *testing.T) {
	l := listen(t, ownAddr) // the kernel accepts
	p := run(t)
	silent := health.Target{Addr: addrOf(l), Check: check(service.CheckHTTP)}
	connects := health.Target{Addr: addrOf(l), Check: patient(service.CheckTCP)}
	set(p, silent, connects)
	await(t, p, silent, health.Down, "no answer within 50ms")
	await(t, p, connects, health.Up, "")
}

// A first probe that times out is repeated once before it counts.
func TestFirstSilenceIsNotTheLastWord(t *testing.T) {
	var asked atomic.Int32
	first := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			close(first)
			<-r.Context().Done()
		}
	}))
	defer srv.Close()
	p := run(t)
	slow := health.Target{Addr: addrOf(srv.Listener), Check: patient(service.CheckHTTP)}
	slow.Check.Interval, slow.Check.Timeout, slow.Check.Rise = time.Hour, 3*time.Second, 100
	set(p, slow)
	<-first
	await(t, p, slow, health.Up, "")
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
}

// TestRiseAndFall checks rise and fall from outside, with a backend that counts requests.
func TestRiseAndFall(t *testing.T) {
	var asked, bad atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if bad.Load() != 0 {
			w.WriteHeader(500)
		}
	}))
	defer srv.Close()
	p := run(t)
	c := patient(service.CheckHTTP)
	c.Rise, c.Fall = 4, 3
	target := health.Target{Addr: addrOf(srv.Listener), Check: c}
	set(p, target)
	await(t, p, target, health.Up, "")
	// One probe may be in flight while the backend changes its response, so the number of
	// requests may differ from the threshold by one.
	for _, step := range []struct {
		bad   int32
		state health.State
		words string
		least int32
	}{{1, health.Down, "HTTP 500", 3}, {0, health.Up, "", 4}} {
		before := asked.Load()
		bad.Store(step.bad)
		await(t, p, target, step.state, step.words)
		if n := asked.Load() - before; n < step.least-1 {
			t.Errorf("%s after %d probes, want at least %d", step.state, n, step.least)
		}
	}
}

// A target that stays keeps its state; one that is removed and added again starts over.
func TestSetKeepsState(t *testing.T) {
	l := listen(t, ownAddr)
	c := patient(service.CheckTCP)
	c.Interval = time.Hour // only the first probe
	a := health.Target{Addr: addrOf(l), Check: c}
	b := health.Target{Addr: netip.MustParseAddrPort("127.0.0.1:1"), Check: c}
	p := run(t)
	set(p, a)
	await(t, p, a, health.Up, "")
	l.Close()
	set(p, a, b, b)
	await(t, p, b, health.Down, "connection refused")
	if got := p.State(a); got != health.Up {
		t.Errorf("a target that stayed is %s, want up", got)
	}
	set(p, b)
	if got := p.States(); len(got) != 1 || got[b] != health.Down {
		t.Errorf("got %v, want only %v down", got, b.Addr)
	}
	set(p, a)
	await(t, p, a, health.Down, "connection refused")
}

// Each target is probed once per interval, at its own offset, without drift.
func TestBeat(t *testing.T) {
	var mu sync.Mutex
	var times []time.Time
	l := listen(t, ownAddr)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			mu.Lock()
			times = append(times, time.Now())
			mu.Unlock()
			conn.Close()
		}
	}()
	c := patient(service.CheckTCP)
	c.Interval = 20 * time.Millisecond
	p := run(t)
	set(p, health.Target{Addr: addrOf(l), Check: c})
	const probes, window = 110, 90
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		n := len(times)
		mu.Unlock()
		if n > probes {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("only %d probes in %s", n, patience)
		}
	}
	// Delays may skip probes but never add any: an extra probe would make every window
	// too short. The first probe of one window may have been seen late, but not the first
	// of every window.
	longest := time.Duration(0)
	for i := 1; i+window <= probes; i++ {
		longest = max(longest, times[i+window].Sub(times[i]))
	}
	if least := (window-1)*c.Interval - c.Interval/2; longest < least {
		t.Errorf("%d probes took %s, want at least %s", window, longest, least)
	}
}

func TestManyTargets(t *testing.T) {
	l := listen(t, "0.0.0.0:0")
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				_, _ = conn.Read(make([]byte, 1)) // let the prober close first
				conn.Close()
			}()
		}
	}()
	port := addrOf(l).Port()
	c := service.DefaultHealthCheck
	c.Interval, c.Timeout = 10*time.Second, 10*time.Second // for a busy machine
	var targets []health.Target
	for i := range 1000 {
		addr := netip.AddrFrom4([4]byte{127, 1, byte(i / 250), byte(1 + i%250)})
		targets = append(targets, health.Target{Addr: netip.AddrPortFrom(addr, port), Check: c})
	}
	p := run(t)
	set(p, targets...)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		up := 0
		for _, s := range p.States() {
			if s == health.Up {
				up++
			}
		}
		if up == len(targets) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d are up", up, len(targets))
		}
		select {
		case <-p.Changed():
		case <-time.After(time.Second):
		}
	}
	// Probes once per second must not leave sockets in the kernel for the next sixty
	// seconds.
	sockets, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const timeWait = "06"
	left := 0
	for line := range strings.Lines(string(sockets)) {
		if f := strings.Fields(line); strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) && f[3] == timeWait {
			left++
		}
	}
	if left > 0 {
		t.Errorf("%d sockets are left in TIME_WAIT", left)
	}
}

// BenchmarkSet10000 sets the same ten thousand targets repeatedly, which must be cheap.
func BenchmarkSet10000(b *testing.B) {
	p := probe.New(slog.New(slog.DiscardHandler))
	var targets []health.Target
	for i := range 10000 {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		targets = append(targets, health.Target{Addr: netip.AddrPortFrom(addr, 80), Check: service.DefaultHealthCheck})
	}
	for b.Loop() {
		set(p, targets...)
	}
}

// set replaces the targets.
func set(p *probe.Prober, targets ...health.Target) {
	var gone []health.Target
	for t := range p.States() {
		if !slices.Contains(targets, t) {
			gone = append(gone, t)
		}
	}
	p.Change(targets, gone)
}

// TestTransitions names the targets that have changed or were removed, once.
func TestTransitions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := health.Target{Addr: addrOf(l), Check: service.DefaultHealthCheck}
	p := probe.New(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() { stop(); <-ended }()
	expect := func(when string, want int) {
		t.Helper()
		if moved := p.Transitions(); moved == nil || len(moved) != want || want > 0 && !moved[target.Addr.Addr()] {
			t.Errorf("%s: %v, want %d", when, moved, want)
		}
	}
	p.Change([]health.Target{target}, nil)
	expect("before the first probe", 0)
	<-p.Changed()
	expect("after the first probe", 1)
	p.Change([]health.Target{target}, nil)
	expect("added again", 0)
	p.Change(nil, []health.Target{target, target})
	expect("removed", 1)
	if s := p.State(target); s != health.Unknown {
		t.Errorf("removed, but %s", s)
	}
}
