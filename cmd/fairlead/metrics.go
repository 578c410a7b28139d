package main

import (
	"context"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/agent/metrics"
	"github.com/fairlead/fairlead/agent/status"
)

func metricsFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "metrics-address", "", "`ADDR:PORT` of /metrics for Prometheus (default: none)")
}

// listenMetrics creates the socket for Prometheus, if enabled.
func listenMetrics(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	return metrics.Listen(address)
}

// serveStatus serves the status on a unix socket and, if enabled, metrics to Prometheus,
// until ctx is canceled.
func serveStatus(ctx context.Context, socket, address string, get func() status.Status) error {
	l, err := listenMetrics(address)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if l != nil {
		group.Go(func() error { return metrics.Serve(ctx, l, get) })
	}
	group.Go(func() error { return status.Serve(ctx, socket, get) })
	return group.Wait()
}
