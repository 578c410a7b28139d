package daemon

import (
	"fmt"
	"log/slog"

	"github.com/fairlead/fairlead/advertise/cloud"
	"github.com/fairlead/fairlead/advertise/cloud/aws"
	"github.com/fairlead/fairlead/advertise/cloud/gcp"
	"github.com/fairlead/fairlead/advertise/cloud/webhook"
	"github.com/fairlead/fairlead/agent/config"
)

// NewCloud returns the configured Provider, or nil. If node is not empty, that node acts
// only for itself, otherwise for all nodes.
func NewCloud(c config.Cloud, node string) (p cloud.Provider, err error) {
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
