package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/controller"
	source "github.com/fairlead/fairlead/source/kube"
)

func newControllerCommand() *cobra.Command {
	c := controller.Config{Log: slog.Default()}
	var kubeconfig string
	clouds := config.DefaultCloud()
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Give addresses to a cluster's Services",
		Long: `Controller gives Services of type LoadBalancer addresses of AddressPools, and
writes them to their status, and to their EndpointSlices since when each server
takes flows. Run two or three of them: one leads, by a Lease, and what it has
written is there for the next. Why a Service has no address is told in its
conditions and Events. With --cloud it also has a cloud lead prefixes to the agents
that offer them, where no router speaks BGP.`,
		Example: `  fairlead controller
  fairlead controller --kubeconfig admin.conf --require-class
  fairlead controller --cloud aws --aws-route-table rtb-0123456789abcdef0`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.Cloud, err = newCloud(clouds, ""); err != nil {
				return err
			}
			if c.Client, err = source.Connection(kubeconfig); err != nil {
				return err
			}
			k, err := controller.New(c)
			if err != nil {
				return err
			}
			return k.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server (default: as the pod that this is)")
	f.StringVar(&c.Namespace, "lease-namespace", controller.DefaultNamespace, "`namespace` of the Lease")
	f.StringVar(&c.Lease, "lease", controller.DefaultLease, "`name` of the Lease")
	f.StringVar(&c.Identity, "identity", "", "our `name` in the Lease (default: the host's, with something random)")
	f.DurationVar(&c.LeaseDuration, "lease-duration", controller.DefaultLeaseDuration, "how long a dead leader's Lease holds the others off")
	f.DurationVar(&c.StatusInterval, "status-interval", controller.DefaultStatusInterval, "how often a pool's status is written at most")
	f.BoolVar(&c.RequireClass, "require-class", false, "leave Services without spec.loadBalancerClass to others")
	cloudFlags(cmd, &clouds, config.Clouds...)
	f.StringSliceVar(&clouds.RouteTables, "aws-route-table", nil, "`ID`s of the route tables that lead to VIPs")
	f.StringVar(&clouds.AddressesVPC, "aws-addresses", "", "`ID` of the VPC whose network interfaces get VIPs as addresses, in place of routes")
	f.BoolVar(&c.GatewayAPI, "gateway-api", false, "give addresses to Gateways of the Gateway API, too, and write their conditions and those of their TCPRoutes and UDPRoutes")
	return cmd
}
