package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
)

func monitoringFlags(cmd *cobra.Command, c *config.Monitoring) {
	metricsFlag(cmd, &c.Metrics)
	cmd.Flags().StringVar(&c.Probe, "probe-address", "", "`ADDR:PORT` of /livez and /readyz, without metrics (default: none)")
}

func metricsFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "metrics-address", "", "`ADDR:PORT` of /metrics for Prometheus, and of /livez and /readyz (default: none)")
}

// cloudFlags adds the cloud flags of agents and the controller.
func cloudFlags(cmd *cobra.Command, c *config.Cloud, names ...string) {
	f := cmd.Flags()
	f.StringVar(&c.Cloud, "cloud", "", "where to program routes without a BGP router: "+strings.Join(names, ", "))
	f.StringVar(&c.Owner, "cloud-owner", c.Owner, "`NAME` that marks the cloud objects of this installation")
	f.StringVar(&c.Project, "gcp-project", "", "`NAME` of the project of the routes")
	f.StringVar(&c.Network, "gcp-network", "", "`NAME` of the network of the routes")
	f.IntVar(&c.Priority, "gcp-priority", c.Priority, "priority of the routes; the lowest wins")
	f.StringVar(&c.WebhookURL, "webhook-url", "", "`URL` that receives the desired routes (POST)")
	f.StringVar(&c.WebhookURLFile, "webhook-url-file", "", "`FILE` with the URL, to keep its secrets out of the process list")
	f.StringVar(&c.WebhookSecretFile, "webhook-secret-file", "", "`FILE` with the secret that signs requests")
	_ = cmd.RegisterFlagCompletionFunc("cloud", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}
