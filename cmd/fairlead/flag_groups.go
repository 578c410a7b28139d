package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
)

// daemons are the commands with a --config file, and how their help groups flags.
var daemons = []struct {
	command []string
	groups  []cli.FlagGroup
}{
	{[]string{"agent"}, []cli.FlagGroup{
		{Title: "Source", Flags: []string{"manifest-dir", "state-dir", "kubernetes", "kubeconfig", "gateway-api", "require-class", "dedicated-service", "state-cache-max-age"}},
		{Title: "Node", Flags: []string{"role", "node", "node-labels", "interface", "socket", "metrics-address", "probe-address", "backend-metrics", "otlp-endpoint", "bpffs", "resync"}},
		{Title: "Data plane", Flags: []string{"dataplane", "xdp-mode", "max-frontends", "max-backends", "max-flows", "syn-threshold", "gue-port"}},
		{Title: "Node-to-node", Flags: []string{"balancers", "accept-from", "node-key-file", "require-node-key"}},
		{Title: "BGP", Flags: []string{"local-asn", "router-id", "peer", "password-file", "bfd", "next-hop", "weight"}},
		{Title: "Layer 2", Flags: []string{"l2-*"}},
		{Title: "Cloud", Flags: []string{"cloud*", "gcp-*", "webhook-*"}},
		{Title: "Drain", Flags: []string{"drain-*", "graceful-shutdown-period", "withdraw-grace-period"}},
		{Title: "Service proxy", Flags: []string{"cgroup", "node-port-addresses", "uplink", "health-address", "proxy-*", "sync-*"}},
	}},
	{[]string{"controller"}, []cli.FlagGroup{
		{Title: "Leader election", Flags: []string{"lease*"}},
		{Title: "Cloud", Flags: []string{"cloud*", "aws-*", "gcp-*", "webhook-*"}},
	}},
	{[]string{"router"}, nil},
	{[]string{"reflector"}, nil},
	{[]string{"vdn", "controller"}, []cli.FlagGroup{
		{Title: "Access", Flags: []string{"listen", "tls-*", "token-file", "access-file", "audit-log"}},
		{Title: "etcd", Flags: []string{"etcd-*"}},
		{Title: "Federation", Flags: []string{"federation-*"}},
	}},
	{[]string{"vdn", "agent"}, nil},
}

// groupDaemonFlags groups the flags of daemons and adds --config.
func groupDaemonFlags(root *cobra.Command) {
	for _, d := range daemons {
		cmd, _, err := root.Find(d.command)
		if err != nil {
			panic(err) // a command in the list above does not exist
		}
		cli.GroupFlags(cmd, d.groups...)
		cli.ConfigFile(cmd)
	}
}
