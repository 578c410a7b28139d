package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/internal/cli"
)

// flagGroup is a group of flags in a daemon's help.
type flagGroup struct {
	title string
	flags []string
}

// daemons are the commands with a --config file, and how their help groups flags.
var daemons = []struct {
	command []string
	groups  []flagGroup
}{
	{[]string{"agent"}, []flagGroup{
		{"Source", []string{"manifest-dir", "state-dir", "kubernetes", "kubeconfig", "gateway-api", "require-class", "dedicated-service", "state-cache-max-age"}},
		{"Node", []string{"role", "node", "node-labels", "interface", "socket", "metrics-address", "bpffs", "resync"}},
		{"Data plane", []string{"dataplane", "xdp-mode", "max-frontends", "max-backends", "max-flows", "syn-threshold", "gue-port"}},
		{"Node-to-node", []string{"balancers", "accept-from", "node-key-file", "require-node-key"}},
		{"BGP", []string{"local-asn", "router-id", "peer", "password-file", "bfd", "next-hop", "weight"}},
		{"Layer 2", []string{"l2-*"}},
		{"Cloud", []string{"cloud*", "gcp-*", "webhook-*"}},
		{"Drain", []string{"drain-*", "graceful-shutdown-period", "withdraw-grace-period"}},
		{"Service proxy", []string{"cgroup", "node-port-addresses", "uplink", "health-address", "proxy-*", "sync-*"}},
	}},
	{[]string{"controller"}, []flagGroup{
		{"Leader election", []string{"lease*"}},
		{"Cloud", []string{"cloud*", "aws-*", "gcp-*", "webhook-*"}},
	}},
	{[]string{"router"}, nil},
	{[]string{"reflector"}, nil},
	{[]string{"vdn", "controller"}, []flagGroup{
		{"Access", []string{"listen", "tls-*", "token-file", "access-file", "audit-log"}},
		{"etcd", []string{"etcd-*"}},
		{"Federation", []string{"federation-*"}},
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
		for _, g := range d.groups {
			cli.GroupFlags(cmd, g.title, g.flags...)
		}
		cli.ConfigFile(cmd)
	}
}
