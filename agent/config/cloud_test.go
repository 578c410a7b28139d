package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResolveCloud(t *testing.T) {
	for want, change := range map[string]func(*Agent){
		"":                                   func(a *Agent) { a.Cloud.Cloud, a.Cloud.WebhookURL = "webhook", "http://10.0.0.1/" },
		"--cloud: requires --kubernetes":     func(a *Agent) { a.Cloud.Cloud = CloudController },
		"--cloud: aws requires --kubernetes": func(a *Agent) { a.Cloud.Cloud = "aws" },
		`--cloud: "azure" is not one of aws, gcp, webhook`:     func(a *Agent) { a.Cloud.Cloud = "azure" },
		"--cloud: name the one whose settings are given":       func(a *Agent) { a.Cloud.Project = "shop" },
		"--cloud: cannot be combined with --dedicated-service": func(a *Agent) { a.Cloud.Cloud, a.Only = "gcp", "default/web" },
		"--cloud: in a cluster, the controller updates": func(a *Agent) {
			a.Cloud.Cloud, a.Kubernetes, a.Services = "gcp", true, ""
		},
	} {
		a := onLoopback(t)
		change(&a)
		_, err := a.Resolve()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrInvalid)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestCloudSecret(t *testing.T) {
	c := Cloud{WebhookSecretFile: filepath.Join(t.TempDir(), "secret")}
	if _, err := c.Secret(); err == nil || !strings.Contains(err.Error(), "--webhook-secret-file: open") {
		t.Error(err)
	}
	if err := os.WriteFile(c.WebhookSecretFile, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Secret(); s != "open sesame" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
}
