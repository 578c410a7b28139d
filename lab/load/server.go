// Package load is HTTP traffic for labs and the demo: the web server of the backends, and
// a client that counts failed requests and broken connections exactly. Neither depends on
// the network between them.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The headers in which a server names itself and its client.
const (
	ServerHeader = "X-Server"
	ClientHeader = "X-Client"
)

// Server is a web server. It answers every path with its own name and the client's
// address, and /bytes/N with N bytes; it reads a request's body to its end.
type Server struct {
	name     string
	http     http.Server
	requests atomic.Uint64
	draining atomic.Bool

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]bool
	idle      chan struct{} // closed when a connection ends; then replaced
}

// Serve starts a server on listeners, which may be in any namespace.
func Serve(name string, listeners ...net.Listener) *Server {
	s := &Server{name: name, listeners: listeners, conns: map[net.Conn]bool{}, idle: make(chan struct{})}
	s.http = http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ConnState:         s.track,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // the client counts broken connections
	}
	for _, ln := range listeners {
		go s.http.Serve(ln)
	}
	return s
}

// Name is the server's name.
func (s *Server) Name() string { return s.name }

// Requests is the number of requests received.
func (s *Server) Requests() uint64 { return s.requests.Load() }

// Connections is the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	io.Copy(io.Discard, r.Body)
	w.Header().Set(ServerHeader, s.name)
	w.Header().Set(ClientHeader, r.RemoteAddr)
	if s.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	var size int64
	if n, _ := fmt.Sscanf(r.URL.Path, "/bytes/%d", &size); n == 1 && size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		io.CopyN(w, letters{}, size)
		return
	}
	fmt.Fprintf(w, "%s %s\n", s.name, r.RemoteAddr)
}

// letters is an endless text.
type letters struct{}

func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return len(b), nil
}

func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
		close(s.idle)
		s.idle = make(chan struct{})
	}
}

// Drain asks each client, with the next answer, to close its connection. New connections
// are still accepted; they stop when the load balancers know.
func (s *Server) Drain() { s.draining.Store(true) }

// Stop stops the server gracefully: it accepts no more connections (call it when no load
// balancer sends any, because connections in the accept queue are reset), drains, and
// waits until the last one has ended. If ctx ends first, it closes the rest.
func (s *Server) Stop(ctx context.Context) error {
	s.Drain()
	errs := []error{s.closeListeners()}
	for {
		s.mu.Lock()
		open, changed := len(s.conns), s.idle
		s.mu.Unlock()
		if open == 0 {
			return errors.Join(errs...)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("server %s: %d connections are still open: %w", s.name, open, ctx.Err()), s.http.Close())...)
		}
	}
}

// Kill ends the server as SIGKILL ends a process with unread data: listeners are closed,
// and every connection is reset.
func (s *Server) Kill() error {
	err := s.closeListeners()
	s.mu.Lock()
	for c := range s.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
	}
	s.mu.Unlock()
	if e := s.http.Close(); !errors.Is(e, net.ErrClosed) { // closed above
		err = errors.Join(err, e)
	}
	return err
}

func (s *Server) closeListeners() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, ln := range s.listeners {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
