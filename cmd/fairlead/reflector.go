package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/routing"
)

func newReflectorCommand() *cobra.Command {
	c := config.Reflector{AS: config.DefaultAS, BFD: true, MaxClients: bgp.DefaultMaxPeers, MaxPrefixes: bgp.DefaultMaxPrefixes, MaxTotal: bgp.DefaultMaxTotal, Socket: socket.Default(status.RoleReflector)}
	cmd := &cobra.Command{
		Use:   "reflector",
		Short: "Run a BGP route reflector between load balancers and routers",
		Long: `Accept BGP sessions from load balancers within --client-range and reflect all of their
paths to the routers (ADD-PATH), so that a router only peers with the reflector. Run
two for redundancy.`,
		Example: `  fairlead reflector --router-id 10.0.0.109 --client-range 172.16.0.0/16 --router-range 10.0.0.110`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return routing.RunReflector(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.Uint32Var(&c.AS, "local-asn", c.AS, "AS `NUMBER` of the reflector and its peers")
	f.StringVar(&c.RouterID, "router-id", "", "router ID, an IPv4 `ADDR` of this machine")
	f.StringVar(&c.ClusterID, "cluster-id", "", "cluster ID, an IPv4 `ADDR` (default: the router ID)")
	f.StringSliceVar(&c.Listen, "listen", nil, "`ADDR` to listen on; repeatable (default: all)")
	f.StringSliceVar(&c.Clients, "client-range", nil, "`CIDR` of load balancers; repeatable")
	f.StringSliceVar(&c.Routers, "router-range", nil, "`CIDR` or address of routers; repeatable")
	f.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the TCP MD5 password of all sessions")
	f.BoolVar(&c.BFD, "bfd", c.BFD, "monitor peers by BFD")
	f.IntVar(&c.MaxClients, "max-clients", c.MaxClients, "maximum `NUMBER` of load balancer sessions; 0 is no limit")
	f.Uint32Var(&c.MaxPrefixes, "max-prefixes", c.MaxPrefixes, "maximum `NUMBER` of prefixes per family from a load balancer; one that sends more is disconnected; 0 is no limit")
	f.Uint32Var(&c.MaxTotal, "max-total-prefixes", c.MaxTotal, "maximum `NUMBER` of prefixes from all load balancers; the one with the most is disconnected; 0 is no limit")
	f.StringVar(&c.Socket, "socket", c.Socket, "`FILE` of the status socket")
	monitoringFlags(cmd, &c.Monitoring)
	return cmd
}
