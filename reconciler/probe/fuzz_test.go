package probe

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzAnswer uses a backend with arbitrary responses: the probe succeeds only if the
// response begins like HTTP, and the reported error is short.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []string{
		"", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot there",
		"HTTP/1.0 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
	} {
		f.Add([]byte(answer))
	}
	target := health.Target{Addr: netip.MustParseAddrPort("192.0.2.1:80"), Check: service.HealthCheck{Kind: service.CheckHTTP, Path: "/"}}
	f.Fuzz(func(t *testing.T, answer []byte) {
		fuzzlimit.Time(t)
		err := answered(t, target, answer)
		if err == nil {
			if string(answer[:min(5, len(answer))]) != "HTTP/" {
				t.Errorf("%q passes the probe", answer)
			}
			return
		}
		if said := words(err, time.Second); said == "" || len(said) > maxWords+len("...") || !utf8.ValidString(said) {
			t.Errorf("the error has %d bytes: %.300q", len(said), said)
		}
	})
}

// answered runs get against a backend that sends this answer and closes the connection.
func answered(t *testing.T, target health.Target, answer []byte) error {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		request := make([]byte, 4096)
		if _, err := theirs.Read(request); err == nil {
			_, _ = theirs.Write(answer)
		}
	}()
	defer func() { ours.Close(); <-done }()
	return get(ours, target)
}

// TestProbeErrorIsShort uses a real socket and a backend that responds with a long line.
func TestProbeErrorIsShort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write(make([]byte, maxAnswer/2))
			_, _ = c.Write([]byte("\r\n\r\n"))
		}
	}()
	check := service.DefaultHealthCheck
	check.Kind, check.Path, check.Timeout = service.CheckHTTP, "/", 20*time.Second
	err = probe(context.Background(), health.Target{Addr: netip.MustParseAddrPort(l.Addr().String()), Check: check})
	if err == nil {
		t.Fatal("the probe passes")
	}
	if said := words(err, check.Timeout); len(said) > maxWords+len("...") {
		t.Errorf("the error has %d bytes", len(said))
	}
}
