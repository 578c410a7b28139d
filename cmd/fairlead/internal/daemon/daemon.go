// Package daemon contains what several daemons share: sockets for the status and for
// metrics, missing capabilities, parts that run together, and conversions of their
// configuration. What only one daemon needs belongs to that.
package daemon

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/metrics"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/privilege/held"
)

// ServeStatus serves the status on a unix socket and, if enabled, to monitoring systems,
// until ctx is canceled. alive is that of Monitor.Serve.
func ServeStatus(ctx context.Context, path string, c config.Monitoring, alive func() error, get func() status.Status, more ...socket.Endpoint) error {
	m, err := ListenMonitor(c)
	if err != nil {
		return err
	}
	return Together(ctx,
		func(ctx context.Context) error {
			return m.Serve(ctx, metrics.Handler(get, metrics.Options{}), alive, nil)
		},
		func(ctx context.Context) error { return status.Serve(ctx, path, get, more...) })
}

// Lacks logs the capabilities that these roles need and the process lacks, and returns
// the same as an error. The process starts anyway, because not everything needs all of
// them.
func Lacks(roles ...string) error {
	err := held.Lacks(roles...)
	if err != nil {
		slog.Warn("a capability is missing", "error", err)
	}
	return err
}

// Together runs functions until all end; if one fails, the others are canceled. Nil
// functions are skipped.
func Together(ctx context.Context, run ...func(context.Context) error) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, f := range run {
		if f != nil {
			all.Go(func() error { return f(ctx) })
		}
	}
	return all.Wait()
}

// PeerConfig returns a peer from flags.
func PeerConfig(p config.Peer, password string, bfd bool) bgp.PeerConfig {
	return bgp.PeerConfig{Address: p.Address.Addr(), Port: p.Address.Port(), AS: p.AS, Password: password, BFD: bfd}
}

// LetHeapGrow sets by how much the heap may grow between two garbage collections, in
// percent, unless the environment variable GOGC does.
func LetHeapGrow(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
