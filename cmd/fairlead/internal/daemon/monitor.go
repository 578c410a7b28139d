package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/httpserver"
)

// Monitor contains the sockets for monitoring systems. The zero value has none.
type Monitor struct{ metrics, probe net.Listener }

// ListenMonitor creates the sockets that are enabled.
func ListenMonitor(c config.Monitoring) (m Monitor, err error) {
	if m.metrics, err = listen("--metrics-address", c.Metrics); err != nil {
		return m, err
	}
	if m.probe, err = listen("--probe-address", c.Probe); err != nil {
		return m, errors.Join(err, m.Close())
	}
	return m, nil
}

func listen(flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

// Serve serves metrics and probes until ctx is canceled, and closes the sockets. alive
// returns why the process must be restarted, ready why it is not ready; nil means that it is
// once it answers.
func (m Monitor) Serve(ctx context.Context, metrics http.Handler, alive, ready func() error) error {
	group, ctx := errgroup.WithContext(ctx)
	for l, handler := range map[net.Listener]http.Handler{m.metrics: metrics, m.probe: nil} {
		if l == nil {
			continue
		}
		mux := httpserver.Probes(alive, ready)
		if handler != nil {
			mux.Handle("GET /metrics", handler)
		}
		group.Go(func() error {
			return httpserver.Until(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, l)
		})
	}
	group.Go(func() error { <-ctx.Done(); return nil }) // also without a socket
	return group.Wait()
}

// Close closes the sockets that Serve has not closed.
func (m Monitor) Close() error {
	var errs []error
	for _, l := range []net.Listener{m.metrics, m.probe} {
		if l == nil {
			continue
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
