package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/metrics"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/enforce"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
	"github.com/fairlead/fairlead/vdn/enforce/openvswitch"
	"github.com/fairlead/fairlead/vdn/node"
	nodemetrics "github.com/fairlead/fairlead/vdn/node/metrics"
)

func newVDNAgentCommand() *cobra.Command {
	c := config.VDNNode{
		Controller: client.DefaultURL, Means: config.MeansKernel, BPFFS: config.DefaultAgent().BPFFS,
		Data: "/var/lib/fairlead/vdn-node", Socket: node.Socket,
	}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent that enforces networks on this node",
		Long: `Enforce the networks of a domain on this node: receive the plan from the controller,
program it into the kernel or Open vSwitch, and report the result every second.

Enforcement continues when the agent exits and while no controller is reachable;
fairlead cleanup removes it.`,
		Example: `  fairlead vdn agent --uplink eth1=1G
  fairlead vdn agent --name gw --gateway --uplink eth1=10G --uplink wan0=1G --controller https://vdn.example:7473 --ca-file ca.crt --token-file token
  fairlead vdn agent --enforcer openvswitch --bridge vdn --uplink eth1=1G`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVDNNode(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", "", "`NAME` of this node (default: the host name)")
	f.StringVar(&c.Controller, "controller", c.Controller, "`URL` of the controllers, separated by commas")
	f.StringVar(&c.TokenFile, "token-file", "", "`FILE` with the token for the controller")
	f.StringVar(&c.CAFile, "ca-file", "", "`FILE` with the controller's CA (PEM)")
	f.StringSliceVar(&c.Uplinks, "uplink", nil, "`DEVICE=RATE` that networks share, such as eth1=1G; repeatable")
	f.BoolVar(&c.Gateway, "gateway", false, "forward between networks and to other destinations")
	f.StringVar(&c.Means, "enforcer", c.Means, "kernel or openvswitch")
	f.StringVar(&c.Bridge, "bridge", "", "Open vSwitch `BRIDGE` used by Fairlead only")
	f.StringVar(&c.BPFFS, "bpffs", c.BPFFS, "`DIR` of the BPF file system")
	f.StringVar(&c.Data, "data", c.Data, "`DIR` of the last plan")
	f.StringVar(&c.Socket, "socket", c.Socket, "`FILE` of the socket for CNI plugins")
	metricsFlag(cmd, &c.MetricsAddress)
	return cmd
}

func runVDNNode(ctx context.Context, c config.VDNNode) (err error) {
	r, err := c.Resolve()
	if err != nil {
		return err
	}
	if r.Means == config.MeansKernel {
		lacking := lacks(privilege.VDNNode)
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
	l, err := status.Listen(r.Socket)
	if err != nil {
		return errors.Join(err, e.Close())
	}
	scraped, err := listenMetrics(r.MetricsAddress)
	if err != nil {
		return errors.Join(err, l.Close(), e.Close())
	}
	d := node.New(node.Config{Node: r.Node, Controller: controller, Enforcer: e, Kept: r.Kept})
	run := []func(context.Context) error{d.Run, func(ctx context.Context) error { return d.Serve(ctx, l) }}
	if scraped != nil {
		run = append(run, func(ctx context.Context) error {
			return metrics.ServeHandler(ctx, scraped, nodemetrics.Handler(d.Status))
		})
	}
	return errors.Join(together(ctx, run...), e.Close())
}

func openMeans(r *config.ResolvedVDNNode) (enforce.Enforcer, error) {
	if r.Means == config.MeansOpenVSwitch {
		return openvswitch.Open(openvswitch.Config{Bridge: r.Bridge, Uplinks: r.Uplinks})
	}
	return kernel.Open(kernel.Config{PinDir: r.Pins, Uplinks: r.Uplinks, Gateway: r.Gateway})
}

// cleanUpVDN removes the programs and routes of a node's daemon. A bridge of Open vSwitch
// belongs to its operator.
func cleanUpVDN(folder string) error {
	if err := kernel.Clean(filepath.Join(folder, filepath.Base(config.VDNPins))); err != nil {
		return err
	}
	return node.RemoveRoutes()
}
