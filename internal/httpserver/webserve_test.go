package httpserver

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestLimits checks that overlong headers are rejected and idle connections are closed.
func TestLimits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan error, 1)
	go func() { done <- Until(ctx, srv, l) }()
	for size, want := range map[int]int{1000: http.StatusOK, 2 * maxHeader: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X", strings.Repeat("x", size))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a header of %d bytes: %s, want %d", size, resp.Status, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if srv.IdleTimeout != idle {
		t.Errorf("idle connections stay for %s", srv.IdleTimeout)
	}
}
