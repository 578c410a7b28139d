package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/lab/kube"
)

// corefile serves DNS for pods on the control plane's address, so names do not need a
// service proxy.
const corefile = `.:53 {
  bind %s
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig %s
    pods insecure
  }
  cache 5
  ready 127.0.0.1:8181
}
`

func (c *Cluster) startControl(ctx context.Context) (err error) {
	c.Control = c.lab.Host("cp")
	c.Cluster, err = kube.New(ctx, filepath.Join(c.work, "control"), kube.Options{
		Host: c.Control.Namespace(), Address: controlAddr, Logs: c.opts.Logs,
	})
	if err != nil {
		return err
	}
	if err := c.startManager(ctx); err != nil {
		return err
	}
	if err := c.startScheduler(ctx); err != nil {
		return err
	}
	return c.startDNS(ctx)
}

func (c *Cluster) startManager(ctx context.Context) error {
	kubeconfig, err := c.KubeconfigFor("system:kube-controller-manager")
	if err != nil {
		return err
	}
	cert, key := c.Authority()
	return c.startProgram(ctx, "kube-controller-manager", "https://127.0.0.1:10257/healthz",
		"--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--leader-elect=false",
		"--use-service-account-credentials", "--service-account-private-key-file", c.AccountKey(), "--root-ca-file", cert,
		"--cluster-signing-cert-file", cert, "--cluster-signing-key-file", key,
		"--kube-api-qps", "200", "--kube-api-burst", "400")
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	kubeconfig, err := c.KubeconfigFor("system:kube-scheduler")
	if err != nil {
		return err
	}
	return c.startProgram(ctx, "kube-scheduler", "https://127.0.0.1:10259/healthz",
		"--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--leader-elect=false",
		"--kube-api-qps", "200", "--kube-api-burst", "400")
}

func (c *Cluster) startDNS(ctx context.Context) error {
	path := filepath.Join(c.work, "Corefile")
	if err := os.WriteFile(path, fmt.Appendf(nil, corefile, controlAddr, c.Kubeconfig), 0o644); err != nil {
		return err
	}
	return c.startProgram(ctx, "coredns", "http://127.0.0.1:8181/ready", "-conf", path)
}

// startProgram starts a program of the control plane, and waits until it serves a page.
func (c *Cluster) startProgram(ctx context.Context, name, page string, flags ...string) error {
	p := c.Program(c.Binaries, name, kube.Page(c.Dial, page), flags...)
	c.programs = append(c.programs, p)
	return p.Start(ctx)
}
