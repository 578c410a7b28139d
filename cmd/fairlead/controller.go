package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
	"github.com/fairlead/fairlead/controller"
	source "github.com/fairlead/fairlead/source/kube"
)

func newControllerCommand() *cobra.Command {
	c := controller.Config{Log: slog.Default()}
	var kubeconfig string
	var monitoring config.Monitoring
	clouds := config.DefaultCloud()
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Assign addresses to a cluster's Services",
		Long: `Assign addresses of AddressPools to Services of type LoadBalancer, and write them to
their status. It also writes to EndpointSlices when each backend became ready. If a
Service gets no address, its conditions and Events give the reason. With --cloud, it
programs cloud routes to the agents that offer prefixes, for networks without a BGP
router.

Run two or three replicas: one leads, elected by a Lease.`,
		Example: `  fairlead controller
  fairlead controller --kubeconfig admin.conf --require-class
  fairlead controller --cloud aws --aws-route-table rtb-0123456789abcdef0`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.Cloud, err = daemon.NewCloud(clouds, ""); err != nil {
				return err
			}
			if c.Client, err = source.Connection(kubeconfig); err != nil {
				return err
			}
			k, err := controller.New(c)
			if err != nil {
				return err
			}
			m, err := daemon.ListenMonitor(monitoring)
			if err != nil {
				return err
			}
			return daemon.Together(cmd.Context(), k.Run, func(ctx context.Context) error { return m.Serve(ctx, k.Metrics(), k.Stuck, k.Ready) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` with the credentials of the API server (default: in-cluster)")
	f.StringVar(&c.Namespace, "lease-namespace", controller.DefaultNamespace, "`NAMESPACE` of the Lease")
	f.StringVar(&c.Lease, "lease", controller.DefaultLease, "`NAME` of the Lease")
	f.StringVar(&c.Identity, "identity", "", "`NAME` of this replica in the Lease (default: host name and a random suffix)")
	f.DurationVar(&c.LeaseDuration, "lease-duration", controller.DefaultLeaseDuration, "time after which another replica replaces a leader that stopped")
	f.DurationVar(&c.StatusInterval, "status-interval", controller.DefaultStatusInterval, "minimum interval between updates of a pool's status")
	f.BoolVar(&c.RequireClass, "require-class", false, "ignore Services without spec.loadBalancerClass")
	monitoringFlags(cmd, &monitoring)
	cloudFlags(cmd, &clouds, config.Clouds...)
	f.StringSliceVar(&clouds.RouteTables, "aws-route-table", nil, "`ID` of a route table for VIPs; repeatable")
	f.StringVar(&clouds.AddressesVPC, "aws-addresses", "", "`ID` of the VPC whose network interfaces get VIPs as addresses instead of routes")
	f.BoolVar(&c.GatewayAPI, "gateway-api", false, "also manage Gateways, TCPRoutes and UDPRoutes of the Gateway API")
	return cmd
}
