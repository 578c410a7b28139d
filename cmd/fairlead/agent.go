package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/advertise/l2"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/agent"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	dpproxy "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/dataplane/xdp"
)

func newAgentCommand() *cobra.Command {
	c := config.DefaultAgent()
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a load balancer, DSR agent or service proxy on this node",
		Long: `Run one or more roles on this node:

  balancer  Forward traffic for VIPs to healthy backends in the kernel (XDP or IPVS),
            and advertise the VIPs by BGP, on a layer 2 segment, or to a cloud.
  dsr       On nodes with backends: receive packets of the forwarding modes tunnel and
            dsr-nat, and restore the VIP as the source of replies.
  proxy     Serve all Services of a cluster to this node, in place of kube-proxy.

Services and EndpointSlices come from --manifest-dir or, with --kubernetes, from the
API server. The kernel keeps forwarding while the agent restarts. On SIGTERM the
agent drains before it exits; a second signal ends it immediately.`,
		Example: `  fairlead agent --manifest-dir /etc/fairlead/services --interface eth0 --peer 10.0.0.109
  fairlead agent --manifest-dir /etc/fairlead/services --l2-interfaces eth0 --l2-members 10.0.0.1,10.0.0.2
  fairlead agent --manifest-dir /etc/fairlead/services --role dsr
  fairlead agent --kubernetes --role balancer,dsr,proxy --node worker-1 --peer 10.0.0.109`,
		Args:    cobra.NoArgs,
		GroupID: groupRun,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent.Run(cmd.Context(), c)
		},
	}
	agentFlags(cmd, &c)
	return cmd
}

func agentFlags(cmd *cobra.Command, c *config.Agent) {
	f := cmd.Flags()
	f.StringVar(&c.Services, "manifest-dir", c.Services, "`DIR` of manifests; changes are applied as they happen")
	f.BoolVar(&c.Kubernetes, "kubernetes", false, "read Services from the API server (in-cluster, or by --kubeconfig)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "`FILE` with the credentials of the API server (default: in-cluster)")
	f.BoolVar(&c.GatewayAPI, "gateway-api", false, "with --kubernetes: also serve Gateways, TCPRoutes and UDPRoutes of the Gateway API")
	f.StringVar(&c.Only, "dedicated-service", "", "serve only the Service `NAMESPACE/NAME`, on a dedicated load balancer")
	f.BoolVar(&c.RequireClass, "require-class", false, "ignore Services without spec.loadBalancerClass, as the controller does with the same flag")
	f.StringSliceVar(&c.Roles, "role", c.Roles, "`ROLE`: balancer, dsr or proxy; repeatable")
	f.StringVar(&c.Node, "node", c.Node, "`NAME` of this node")
	f.Lookup("node").DefValue = "the host name" // in the help, wherever it is printed
	f.StringToStringVar(&c.NodeLabels, "node-labels", nil, "labels of this node as `KEY=VALUE`, for the selectors of BGPPeers and advertisements in --manifest-dir")
	f.StringSliceVar(&c.Interfaces, "interface", c.Interfaces, "`NAME` of an interface that receives traffic for VIPs; repeatable")
	f.StringVar(&c.DataPlane, "dataplane", c.DataPlane, "xdp, ipvs or auto (xdp if this kernel supports it, otherwise ipvs)")
	f.StringVar(&c.Mode, "xdp-mode", c.Mode, "native, generic or auto (native if the driver supports it)")
	f.StringSliceVar(&c.NextHops, "next-hop", nil, "`ADDR` to advertise as next hop; repeatable (default: the interface's)")
	f.Uint32Var(&c.AS, "local-asn", c.AS, "local AS `NUMBER`")
	f.StringVar(&c.RouterID, "router-id", "", "router ID, an IPv4 `ADDR` (default: the interface's)")
	f.StringSliceVar(&c.Peers, "peer", nil, "`ADDR[:PORT][@ASN]` of a BGP peer, in addition to BGPPeers; repeatable")
	f.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the TCP MD5 password of the peers")
	f.Uint32Var(&c.Weight, "weight", 0, "weight of this node for advertisements with weightBy: Node, if the Node has no label fairlead.io/weight (default 1)")
	f.BoolVar(&c.BFD, "bfd", c.BFD, "monitor the peers by BFD")
	f.StringVar(&c.BPFFS, "bpffs", c.BPFFS, "`DIR` of the BPF file system, mounted if necessary")
	f.StringVar(&c.Socket, "socket", c.Socket, "`FILE` of the socket for query commands")
	f.StringVar(&c.StateDir, "state-dir", "", "with --manifest-dir: `DIR` of the last valid manifests, the owners of addresses and the journal (default: SOCKET.state)")
	f.DurationVar(&c.Linger, "withdraw-grace-period", c.Linger, "time to keep forwarding after the withdrawal of a route is confirmed")
	f.DurationVar(&c.Keep, "state-cache-max-age", c.Keep, "with --kubernetes: maximum age of the cached state to start from while the API server is unreachable; 0 disables the cache")
	drainFlags(f, c)
	f.StringVar(&c.Balancers, "balancers", c.Balancers, "Service `NAMESPACE/NAME` whose endpoints are the load balancer nodes")
	f.StringSliceVar(&c.AcceptFrom, "accept-from", nil, "with --role dsr: Service `NAMESPACE/NAME` (or NAMESPACE/LABEL=VALUE) of load balancers that may tunnel packets to this node; repeatable (default: any sender)")
	f.StringVar(&c.NodeKeyFile, "node-key-file", "", "`FILE` with the key that authenticates packets between nodes; a second line is also accepted, for key rotation; changes are applied")
	f.BoolVar(&c.RequireNodeKey, "require-node-key", false, "drop packets between nodes without a valid tag; otherwise they are counted")
	f.DurationVar(&c.Resync, "resync", c.Resync, "interval of a complete comparison with the kernel")
	f.IntVar(&c.MaxFrontends, "max-frontends", 0, fmt.Sprintf("maximum `NUMBER` of frontends (default %d)", xdp.DefaultMaxFrontends))
	f.IntVar(&c.MaxBackends, "max-backends", 0, fmt.Sprintf("maximum `NUMBER` of backends (default %d)", xdp.DefaultMaxBackends))
	f.IntVar(&c.MaxFlows, "max-flows", 0, fmt.Sprintf("maximum `NUMBER` of tracked flows (default %d; %d for role dsr)",
		xdp.DefaultMaxFlows, dsr.DefaultMaxFlows))
	f.IntVar(&c.SYNThreshold, "syn-threshold", 0, fmt.Sprintf("new TCP connections per second on a frontend that activate SYN flood protection, "+
		"if most of its packets are SYNs (default %d)", service.DefaultSYNThreshold))
	f.Uint16Var(&c.GUEPort, "gue-port", 0, fmt.Sprintf("UDP `PORT` of GUE tunnels, the same on all nodes (default %d)", service.DefaultGUEPort))
	monitoringFlags(cmd, &c.Monitoring)
	f.BoolVar(&c.BackendMetrics, "backend-metrics", false, "also export metrics of each backend of each frontend, which may be many")
	f.StringVar(&c.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector (OTLP over HTTP), such as http://collector:4318, for a trace of each change (default: none)")
	proxyFlags(f, &c.ServiceProxy)
	cloudFlags(cmd, &c.Cloud, config.CloudController, "gcp", "webhook")
	layer2Flags(f, &c.Layer2)
	for flag, values := range map[string][]string{"dataplane": config.DataPlanes, "xdp-mode": config.Modes, "role": {string(config.Balancer), string(config.DSR), string(config.Proxy)}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func drainFlags(f *pflag.FlagSet, c *config.Agent) {
	f.DurationVar(&c.DrainNotice, "graceful-shutdown-period", c.DrainNotice, "time that routes are advertised with the lowest preference before they are withdrawn (RFC 8326)")
	f.StringSliceVar(&c.DrainCommunities, "drain-community", c.DrainCommunities, "`COMMUNITY` that asks routers to avoid a route; repeatable")
	f.Uint32Var(&c.DrainMED, "drain-med", 0, "minimum `MED` of routes while draining; 0 keeps the route's")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "maximum time to wait for tracked flows while other --balancers exist, and at exit for confirmed withdrawals")
	f.BoolVar(&c.DrainOnCordon, "drain-on-cordon", c.DrainOnCordon, "drain while the Node is cordoned, unless this is the last active one of --balancers")
	f.StringSliceVar(&c.DrainTaints, "drain-taint", c.DrainTaints, "drain while the Node has a taint with this `KEY`, with the same exception; repeatable")
}

func proxyFlags(f *pflag.FlagSet, c *config.ServiceProxy) {
	f.StringVar(&c.Cgroup, "cgroup", "", "`DIR` of the cgroup (v2) whose sockets are served (default: the root)")
	f.StringSliceVar(&c.NodePortAddresses, "node-port-addresses", nil,
		"`CIDR` of node addresses that serve node ports; repeatable (default: the addresses of the Node)")
	f.StringSliceVar(&c.Uplinks, "uplink", nil, "`NAME` of an interface that receives external traffic; repeatable (default: those with a default route)")
	f.StringVar(&c.Health, "health-address", c.Health, "`ADDR:PORT` of /healthz, as kube-proxy; empty disables it")
	f.IntVar(&c.MaxServiceFrontends, "proxy-max-frontends", 0, fmt.Sprintf("maximum `NUMBER` of addresses with port and protocol of Services for role proxy "+
		"(default %d); to change it, remove the pinned maps first", dpproxy.DefaultMaxFrontends))
	f.IntVar(&c.MaxServiceTargets, "proxy-max-targets", 0, fmt.Sprintf("maximum `NUMBER` of endpoints of Services for role proxy; changed endpoints briefly count twice (default %d); to change it, remove the pinned maps first", dpproxy.DefaultMaxTargets))
	f.DurationVar(&c.Window, "sync-min-period", c.Window, "time to collect further changes after a change")
	f.DurationVar(&c.MaxDelay, "sync-max-delay", c.MaxDelay, "maximum delay of a change")
}

func layer2Flags(f *pflag.FlagSet, c *config.Layer2) {
	f.StringSliceVar(&c.Interfaces, "l2-interfaces", nil, "`NAME` of an interface on which to answer ARP and neighbor discovery for VIPs, one of --l2-members per VIP; repeatable")
	f.StringSliceVar(&c.Members, "l2-members", nil, "`ADDR` of each node that may own VIPs, the same list on all; repeatable (default: --balancers)")
	f.StringVar(&c.PasswordFile, "l2-password-file", "", fmt.Sprintf("`FILE` with the password that authenticates messages between members (UDP port %d)", l2.Port))
}
