package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/networks"
	"github.com/fairlead/fairlead/vdn/client"
	"github.com/fairlead/fairlead/vdn/node"
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
		RunE: func(cmd *cobra.Command, _ []string) error { return networks.RunAgent(cmd.Context(), c) },
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
	monitoringFlags(cmd, &c.Monitoring)
	return cmd
}
