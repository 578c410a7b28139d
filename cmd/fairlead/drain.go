package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/drain"
)

func newDrainCommand() *cobra.Command {
	var d drain.Command
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Drain this load balancer node, or a backend",
		Long: `Drain the load balancer on this node: its routes ask routers to avoid it, then they
are withdrawn; BGP sessions stay up, and packets that still arrive are forwarded.
It is drained when no flow depends on it, or after the agent's --drain-timeout.
fairlead status shows the stage.

It stays drained until fairlead undrain or a restart of the agent, even if no other
load balancer is left. Other load balancers are not informed: if flows are tracked,
taint the Node with fairlead.io/drain instead.

With --backend, drain a backend: it gets no new flows and keeps those that it has. That
is a Quarantine in the agent's folder of manifests, which lasts until fairlead undrain
--backend; put it on all load balancers. On a cluster, kubectl fairlead drain --backend
drains the backend on all nodes.`,
		Example: `  fairlead drain
  fairlead drain --wait 1m
  fairlead drain --backend 172.16.1.10 --reason "disk errors"
  fairlead drain --backend 172.16.1.10:8080 --service default/web`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.Run(cmd, true) },
	}
	d.Flags(cmd, "wait up to this long until it is drained; 0 does not wait")
	d.BackendFlags(cmd)
	d.OrderFlags(cmd)
	return cmd
}

func newUndrainCommand() *cobra.Command {
	var d drain.Command
	cmd := &cobra.Command{
		Use:   "undrain",
		Short: "End a drain of this load balancer node, or of a backend",
		Long: `End a drain that fairlead drain started: the load balancer advertises its routes
again. A drain by a cordoned or tainted Node ends with its cause. With --backend, the
backend gets new flows again.`,
		Example: `  fairlead undrain
  fairlead undrain --wait 1m
  fairlead undrain --backend 172.16.1.10`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.Run(cmd, false) },
	}
	d.Flags(cmd, "wait up to this long until it advertises again; 0 does not wait")
	d.BackendFlags(cmd)
	return cmd
}
