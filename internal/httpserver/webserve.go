// Package httpserver serves HTTP until a context ends.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// grace is the shutdown timeout for requests in progress.
const grace = time.Second

// Limits for servers that set none.
const (
	// maxHeader, in bytes, is far more than any request needs.
	maxHeader = 64 << 10
	// idle is how long an idle connection is kept open.
	idle = 2 * time.Minute
)

// Bound sets the limits that srv does not set, and returns srv.
func Bound(srv *http.Server) *http.Server {
	if srv.MaxHeaderBytes == 0 {
		srv.MaxHeaderBytes = maxHeader
	}
	if srv.IdleTimeout == 0 {
		srv.IdleTimeout = idle
	}
	return srv
}

// Until serves srv on l until ctx ends, then closes l. Long-running requests must watch for
// the end themselves (http.Server.BaseContext).
func Until(ctx context.Context, srv *http.Server, l net.Listener) error {
	Bound(srv)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(l)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("answering on %s: %w", l.Addr(), err)
}
