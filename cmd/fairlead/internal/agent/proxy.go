package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/dataplane/healthport"
	dpproxy "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/dataplane/proxy/packet"
	"github.com/fairlead/fairlead/internal/heartbeat"
	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/reconciler/proxy"
	"github.com/fairlead/fairlead/source/kube"
)

// serviceProxy contains the components of the role proxy.
type serviceProxy struct {
	config  *config.Resolved
	plane   *dpproxy.DataPlane
	packets *packet.Half
	loop    *proxy.Loop
	ports   *healthport.Server
	healthz *healthport.Healthz
	// leaving means that the node is about to be removed.
	leaving atomic.Bool
}

// newProxy returns a service proxy that can receive changes of a cluster. It has no data
// plane before open.
func newProxy(r *config.Resolved, rounds *heartbeat.Rounds) *serviceProxy {
	p := &serviceProxy{config: r}
	p.healthz = &healthport.Healthz{Timeout: healthport.DefaultTimeout, Eligible: func() bool { return !p.leaving.Load() }}
	p.ports = healthport.New(healthport.Config{Healthy: p.healthz.Healthy, Retry: healthport.DefaultRetry, Log: slog.Default()})
	p.loop = proxy.New(proxy.Config{Health: p.ports, Window: r.Window, MaxDelay: r.MaxDelay, Resync: r.Resync, Rounds: rounds, Log: slog.Default()})
	p.healthz.Sync = p.loop.Sync
	return p
}

// open takes over the state that a predecessor left in the kernel.
func (p *serviceProxy) open() (err error) {
	r := p.config
	pins := filepath.Join(r.BPFFS, "fairlead", "proxy")
	p.plane, err = dpproxy.Open(dpproxy.Config{
		PinDir: pins, Cgroup: r.Cgroup, MaxFrontends: uint32(r.MaxServiceFrontends), MaxTargets: uint32(r.MaxServiceTargets), Log: slog.Default(),
	})
	if err != nil {
		return err
	}
	p.packets, err = packet.Open(packet.Config{
		Maps: dpproxy.Folder(pins), PinDir: filepath.Join(r.BPFFS, "fairlead", "packets"), Uplinks: r.Uplinks,
		MaxFlows: uint32(r.MaxFlows), Log: slog.Default(),
	})
	p.loop.Plane = p.plane // used only by Run
	return err
}

// onNode applies what Kubernetes reports about this node.
func (p *serviceProxy) onNode(n kube.Node) {
	p.leaving.Store(n.Leaving)
	if len(p.config.NodePortPrefixes) == 0 {
		p.loop.SetNodeAddresses(n.InternalIPs)
	}
}

func (p *serviceProxy) run(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { return p.loop.Run(ctx) })
	group.Go(func() error { return p.ports.Run(ctx) })
	if prefixes := p.config.NodePortPrefixes; len(prefixes) > 0 {
		group.Go(func() error { return dpproxy.FollowNodeAddresses(ctx, prefixes, p.loop.SetNodeAddresses) })
	}
	if p.config.Health != "" {
		group.Go(func() error { return p.answerHealthz(ctx) })
	}
}

// answerHealthz serves /healthz. If the port is in use, it retries: the proxy works
// without it.
func (p *serviceProxy) answerHealthz(ctx context.Context) error {
	for ctx.Err() == nil {
		server := httpserver.Bound(&http.Server{Addr: p.config.Health, Handler: p.healthz.Handler(), ReadHeaderTimeout: 5 * time.Second})
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		err := server.ListenAndServe()
		stop()
		if ctx.Err() != nil {
			break
		}
		slog.Warn("failed to serve the health check", "address", p.config.Health, "error", err)
		sleep.For(ctx, healthport.DefaultRetry)
	}
	return nil
}

// state returns the status of the service proxy.
func (p *serviceProxy) state() status.ServiceProxy {
	v := p.loop.View()
	s := status.ServiceProxy{
		Loaded: v.Loaded, Synced: v.Synced, Services: v.Services, Frontends: v.Frontends, Unwritten: v.Unwritten, Refused: v.Refused,
		LastSync: v.LastSync, Changes: v.Changes, Writes: v.Passes, Entries: p.plane.Writes(), Healthy: p.healthz.Healthy(),
		DelayP50: v.Latency.P50, DelayP99: v.Latency.P99, Delays: v.Delays, Failures: v.Failures,
		Attached: append(p.plane.Describe().Attached, p.packets.Describe().Attached...), Drops: p.packets.Describe().Drops,
	}
	if v.LastError != nil {
		s.Error = v.LastError.Error()
	}
	s.Problems = p.problems()
	return s
}

// problems returns what is rejected, and what fails.
func (p *serviceProxy) problems() (all []problem.Problem) {
	for _, of := range append(p.loop.View().Problems, p.ports.Problems()...) {
		all = append(all, of.Problem)
	}
	return all
}

// close closes the data plane; the kernel keeps serving.
func (p *serviceProxy) close() error {
	var errs []error
	if p.packets != nil {
		errs = append(errs, p.packets.Close())
	}
	if p.plane != nil {
		errs = append(errs, p.plane.Close())
	}
	return errors.Join(errs...)
}
