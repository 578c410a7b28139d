package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// Clouds are the APIs by which prefixes may be led to balancers.
var Clouds = []string{"aws", "gcp", "webhook"}

// CloudController says that an agent offers to the controller what the cloud is to
// lead to it.
const CloudController = "controller"

// Cloud says which API leads prefixes to balancers, and how.
type Cloud struct {
	// Cloud is one of Clouds, on an agent also CloudController; empty for none.
	Cloud string
	// Owner marks what is ours there.
	Owner string
	// RouteTables and AddressesVPC are AWS's, one of the two is given.
	RouteTables  []string
	AddressesVPC string
	// Project, Network and Priority are those of Google Cloud's routes.
	Project, Network string
	Priority         int
	// WebhookURL is told to everybody who lists processes; WebhookURLFile holds one
	// with a password or a token in it.
	WebhookURL, WebhookURLFile string
	WebhookSecretFile          string
}

// DefaultCloud gives the defaults.
func DefaultCloud() Cloud { return Cloud{Owner: "fairlead", Priority: 1000} }

// Secret reads what signs a webhook's requests; empty where there is no file.
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

// Webhook is the URL that a webhook is posted to.
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

// ShownURL says that WebhookURL has what only its user is to know, and shows it in
// the list of processes.
func (c Cloud) ShownURL() bool {
	u, err := url.Parse(c.WebhookURL)
	return err == nil && (u.User != nil || u.RawQuery != "")
}

// CheckName says whether there is such a cloud.
func (c Cloud) CheckName() error {
	if c.Cloud != "" && !slices.Contains(Clouds, c.Cloud) {
		return invalid{fmt.Errorf("--cloud: %q is none of %s", c.Cloud, list(Clouds))}
	}
	if c.Cloud == "" && (len(c.RouteTables) > 0 || c.AddressesVPC != "" || c.Project != "" || c.Network != "" || c.WebhookURL != "" || c.WebhookURLFile != "" || c.WebhookSecretFile != "") {
		return invalid{errors.New("--cloud: name the one whose settings are given: " + list(Clouds))}
	}
	return nil
}

// resolveCloud checks what can be known before the cloud is asked.
func (r *Resolved) resolveCloud(p *parser) {
	c := r.Agent.Cloud
	switch {
	case c.Cloud != "" && r.Only != "":
		p.refuse("cloud", "what a cloud leads to is a node, and a balancer of one Service (--dedicated-service) may not be the only one there: announce it by BGP")
	case c.Cloud == CloudController && !r.Agent.Kubernetes:
		p.refuse("cloud", "a controller is there with --kubernetes alone: name gcp or webhook, and this node acts for itself")
	case c.Cloud == CloudController:
	case c.Cloud != "" && r.Agent.Kubernetes:
		p.refuse("cloud", "in a cluster the controller asks the cloud, for all balancers: say %s here, and fairlead controller --cloud %s", CloudController, c.Cloud)
	case c.Cloud == "aws":
		p.refuse("cloud", "AWS leads a prefix to one balancer, and one controller has to say which: it takes --kubernetes")
	default:
		if err := c.CheckName(); err != nil {
			p.errs = append(p.errs, err)
		}
	}
}
