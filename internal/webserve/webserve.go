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

// Until answers by srv on l until ctx ends; then it closes l. Whose requests wait for
// something must see to it that they learn of the end (http.Server.BaseContext).
func Until(ctx context.Context, srv *http.Server, l net.Listener) error {
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
