package routing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/router"
)

// runShadow installs resilient shadow routes for the routes of another routing daemon
// until ctx is canceled.
func runShadow(ctx context.Context, r *config.ResolvedRouter) error {
	table, err := shadowTable(r.Metric, r.Table)
	if err != nil {
		return err
	}
	guard, err := startGuard(r.Metric, r.Table)
	if err != nil {
		return errors.Join(err, table.Close(true))
	}
	slog.Info("making routes resilient", "protocols", r.Router.ShadowProtocols, "metric", r.Metric)
	look := statusBase(status.RoleRouter)
	look.Peers = func() []advertise.Peer { return nil }
	look.Received = func() ([]advertise.RouteSet, error) { return table.Desired(), nil }
	look.Table = table
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	group, following := errgroup.WithContext(following)
	group.Go(func() error {
		defer cancel()
		return table.Follow(following, router.Shadow{Protocols: r.ShadowProtocols, Accept: r.Accept})
	})
	group.Go(func() error {
		defer cancel()
		return daemon.ServeStatus(following, r.Socket, r.Monitoring, table.Stuck, func() status.Status { return look.Gather(time.Now()) })
	})
	group.Go(func() error { return guard.watch(following) })
	err = group.Wait()
	return errors.Join(err, table.Close(true), guard.end())
}

// shadowTable returns the part of the kernel routing table with the shadow routes. Its
// next-hop IDs are disjoint from those of a router with sessions.
func shadowTable(metric, table int) (*router.Table, error) {
	return router.New(router.Config{Metric: uint32(metric), Table: uint32(table), FirstID: 2 * router.DefaultFirstID, Log: slog.Default()})
}

// guard is a process that removes our routes when this process is gone, however it ended:
// routes that nobody updates would lead to dead next hops. It waits for the end of a pipe
// that only we hold open.
type guard struct {
	cmd   *exec.Cmd
	pipe  io.Closer
	ended chan error
}

func startGuard(metric, table int) (*guard, error) {
	cmd := exec.Command("/proc/self/exe", "router", "guard", "--metric", strconv.Itoa(metric), "--table", strconv.Itoa(table))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // keep a terminal's interrupt to ourselves
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("failed to start the process that removes the routes if this one dies: %w", err)
	}
	g := &guard{cmd: cmd, pipe: pipe, ended: make(chan error, 1)}
	go func() { g.ended <- cmd.Wait() }()
	return g, nil
}

// watch returns an error if the guard ends before us.
func (g *guard) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.ended:
		g.ended <- err
		return fmt.Errorf("the process that removes the routes if this one dies has exited (%v): exiting too", err)
	}
}

func (g *guard) end() error {
	g.pipe.Close()
	return <-g.ended
}

// Guard removes the routes of a router that ends, which closes standard input.
func Guard(metric, number int) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	table, err := shadowTable(metric, number)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, table.Close(true))
}
