package networks

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/enforce"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
	"github.com/fairlead/fairlead/vdn/enforce/openvswitch"
	"github.com/fairlead/fairlead/vdn/node"
	"github.com/fairlead/fairlead/vdn/node/metrics"
)

// RunAgent enforces networks on this node until ctx is canceled.
func RunAgent(ctx context.Context, c config.VDNNode) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if r.Means == config.MeansKernel {
		lacking := daemon.Lacks(privilege.VDNNode)
		defer func() { err = held.Blame(err, lacking) }()
	}
	controller, err := client.New(r.Client)
	if err != nil {
		return err
	}
	e, err := openMeans(r)
	if err != nil {
		return err
	}
	l, err := socket.Listen(r.Socket)
	if err != nil {
		return errors.Join(err, e.Close())
	}
	monitor, err := daemon.ListenMonitor(r.Monitoring)
	if err != nil {
		return errors.Join(err, l.Close(), e.Close())
	}
	d := node.New(node.Config{Node: r.Node, Controller: controller, Enforcer: e, Kept: r.Kept})
	err = daemon.Together(ctx, d.Run,
		func(ctx context.Context) error { return d.Serve(ctx, l) },
		func(ctx context.Context) error {
			return monitor.Serve(ctx, metrics.Handler(d.Status), d.Stuck, d.Ready)
		})
	return errors.Join(err, e.Close())
}

func openMeans(r *config.ResolvedVDNNode) (enforce.Enforcer, error) {
	if r.Means == config.MeansOpenVSwitch {
		return openvswitch.Open(openvswitch.Config{Bridge: r.Bridge, Uplinks: r.Uplinks})
	}
	return kernel.Open(kernel.Config{PinDir: r.Pins, Uplinks: r.Uplinks, Gateway: r.Gateway})
}

// CleanUp removes the programs and routes of a node's daemon. A bridge of Open vSwitch
// belongs to its operator.
func CleanUp(folder string) error {
	if err := kernel.Clean(filepath.Join(folder, filepath.Base(config.VDNPins))); err != nil {
		return err
	}
	return node.RemoveRoutes()
}
