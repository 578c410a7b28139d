package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// Clouds lists the APIs that can route prefixes to load balancers.
var Clouds = []string{"aws", "gcp", "webhook"}

// CloudController makes an agent offer its routes to the controller, which calls the
// cloud API.
const CloudController = "controller"

// Cloud configures which API routes prefixes to load balancers, and how.
type Cloud struct {
	// Cloud is one of Clouds or, on an agent, CloudController; empty: none.
	Cloud string
	// Owner marks the cloud resources that belong to us.
	Owner string
	// RouteTables and AddressesVPC are for AWS; exactly one is set.
	RouteTables  []string
	AddressesVPC string
	// Project, Network and Priority are those of Google Cloud routes.
	Project, Network string
	Priority         int
	// WebhookURL is visible in the process list. WebhookURLFile contains a URL with a
	// password or token.
	WebhookURL, WebhookURLFile string
	WebhookSecretFile          string
}

// DefaultCloud returns the defaults.
func DefaultCloud() Cloud { return Cloud{Owner: "fairlead", Priority: 1000} }

// Secret reads the key that signs webhook requests; empty if there is no file.
func (c Cloud) Secret() (string, error) {
	if c.WebhookSecretFile == "" {
		return "", nil
	}
	secret, err := ReadPassword(c.WebhookSecretFile)
	if err != nil {
		return "", fmt.Errorf("--webhook-secret-file: %w", err)
	}
	return secret, nil
}

// Webhook returns the URL of the webhook.
func (c Cloud) Webhook() (string, error) {
	switch {
	case c.WebhookURLFile == "":
		return c.WebhookURL, nil
	case c.WebhookURL != "":
		return "", errors.New("--webhook-url-file: there is --webhook-url, too: leave that out")
	}
	text, err := ReadPassword(c.WebhookURLFile)
	if err != nil {
		return "", fmt.Errorf("--webhook-url-file: %w", err)
	}
	return text, nil
}

// ShownURL reports whether WebhookURL contains secrets, which the process list exposes.
func (c Cloud) ShownURL() bool {
	u, err := url.Parse(c.WebhookURL)
	return err == nil && (u.User != nil || u.RawQuery != "")
}

// CheckName validates the name of the cloud.
func (c Cloud) CheckName() error {
	if c.Cloud != "" && !slices.Contains(Clouds, c.Cloud) {
		return invalid{&FlagError{"cloud", fmt.Sprintf("%q is not one of %s", c.Cloud, list(Clouds))}}
	}
	if c.Cloud == "" && (len(c.RouteTables) > 0 || c.AddressesVPC != "" || c.Project != "" || c.Network != "" || c.WebhookURL != "" || c.WebhookURLFile != "" || c.WebhookSecretFile != "") {
		return invalid{&FlagError{"cloud", "name the one whose settings are given: " + list(Clouds)}}
	}
	return nil
}

// resolveCloud validates what can be known without calling the cloud.
func (r *Resolved) resolveCloud(p *parser) {
	c := r.Agent.Cloud
	switch {
	case c.Cloud != "" && r.Only != "":
		p.refuse("cloud", "cannot be combined with --dedicated-service: a cloud routes to nodes, which may run other load balancers, too; advertise the Service by BGP")
	case c.Cloud == CloudController && !r.Agent.Kubernetes:
		p.refuse("cloud", "requires --kubernetes, where a controller runs; without a cluster, use gcp or webhook")
	case c.Cloud == CloudController:
	case c.Cloud != "" && r.Agent.Kubernetes:
		p.refuse("cloud", "in a cluster, the controller updates the cloud for all load balancers: use %s here, and fairlead controller --cloud %s", CloudController, c.Cloud)
	case c.Cloud == "aws":
		p.refuse("cloud", "aws requires --kubernetes: AWS routes a prefix to one load balancer, which a controller selects")
	default:
		if err := c.CheckName(); err != nil {
			p.errs = append(p.errs, err)
		}
	}
}
