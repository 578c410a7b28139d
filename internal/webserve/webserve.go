// Package webserve answers HTTP until a context ends.
package webserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// grace is how long answers under way have once it is to end.
const grace = time.Second

// Limits of servers that set none.
const (
	// maxHeader is far more than any request here needs, in bytes.
	maxHeader = 64 << 10
	// idle is how long a connection may be kept without a request.
	idle = 2 * time.Minute
)

// Bound sets the limits that srv does not set, and gives it back.
func Bound(srv *http.Server) *http.Server {
	if srv.MaxHeaderBytes == 0 {
		srv.MaxHeaderBytes = maxHeader
	}
	if srv.IdleTimeout == 0 {
		srv.IdleTimeout = idle
	}
	return srv
}

// Until answers by srv on l until ctx ends; then it closes l. Whose requests wait for
// something must see to it that they learn of the end (http.Server.BaseContext).
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
