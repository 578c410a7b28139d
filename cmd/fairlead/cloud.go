package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/advertise/cloud/aws"
	"github.com/fairlead/fairlead/advertise/cloud/gcp"
	"github.com/fairlead/fairlead/advertise/cloud/webhook"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/cloudroutes"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/reconciler"
	source "github.com/fairlead/fairlead/source/kube"
)

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

// newCloud returns the configured Provider, or nil. If node is not empty, that node acts
// only for itself, otherwise for all nodes.
func newCloud(c config.Cloud, node string) (p cloud.Provider, err error) {
	if err := c.CheckName(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p, err = nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
		}
	}()
	switch c.Cloud {
	case "aws":
		return aws.New(aws.Config{Owner: c.Owner, RouteTables: c.RouteTables, VPC: c.AddressesVPC})
	case "gcp":
		return gcp.New(gcp.Config{Owner: c.Owner, Project: c.Project, Network: c.Network, Priority: c.Priority, Node: node})
	case "webhook":
		secret, err := c.Secret()
		if err != nil {
			return nil, err
		}
		url, err := c.Webhook()
		if err != nil {
			return nil, err
		}
		if c.ShownURL() {
			slog.Warn("--webhook-url with a user or a query is deprecated: the list of processes shows it to every user of this machine; " +
				"write the URL to a file and name that with --webhook-url-file")
		}
		return webhook.New(webhook.Config{URL: url, Secret: secret, Owner: c.Owner, Node: node})
	}
	return nil, nil
}

// openCloud makes a loop also advertise through a cloud, if configured.
func (a *agent) openCloud(loop *reconciler.Config) (err error) {
	r := a.config
	switch r.Agent.Cloud.Cloud {
	case "":
		return nil
	case config.CloudController:
		client, err := source.Connection(r.Kubeconfig)
		if err != nil {
			return err
		}
		namespace := controller.DefaultNamespace
		if r.BalancersID.Namespace != "" {
			namespace = r.BalancersID.Namespace
		}
		if a.cloud, err = cloudroutes.New(cloudroutes.Config{Client: client, Namespace: namespace, Node: r.Node, Log: slog.Default()}); err != nil {
			return err
		}
	default:
		provider, err := newCloud(r.Agent.Cloud, r.Node)
		if err != nil {
			return err
		}
		a.cloud = cloud.NewAnnouncer(r.Node, cloud.Keeper{Provider: provider, Log: slog.Default()})
	}
	announceToo(loop, route.ModeCloud, a.cloud)
	return nil
}
