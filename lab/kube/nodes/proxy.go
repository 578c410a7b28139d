package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/lab/kube"
)

// Fairlead runs Fairlead's service proxy with the program at a path.
func Fairlead(binary string) Proxy {
	return func(ctx context.Context, n *Node) error {
		return n.Start(ctx, n.Page("http://127.0.0.1:10256/healthz"), binary,
			"agent", "--role", "proxy", "--kubernetes", "--kubeconfig", n.Cluster.Kubeconfig, "--node", n.Name,
			"--cgroup", n.Cgroup(), "--bpffs", "/sys/fs/bpf", "--socket", n.file("fairlead.sock"))
	}
}

// KubeProxy runs Kubernetes' own service proxy in one of its modes: "nftables",
// "iptables".
func KubeProxy(mode string) Proxy {
	return func(ctx context.Context, n *Node) error {
		bin, err := kube.Binaries("kube-proxy")
		if err != nil {
			return err
		}
		kubeconfig, err := n.Cluster.KubeconfigFor("system:kube-proxy")
		if err != nil {
			return err
		}
		config := fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
hostnameOverride: %s
conntrack: {maxPerCore: 0}
`, mode, kubeconfig, PodCIDR, n.Name)
		if err := os.WriteFile(n.file("kube-proxy.yaml"), config, 0o644); err != nil {
			return err
		}
		return n.Start(ctx, n.Page("http://127.0.0.1:10256/healthz"), filepath.Join(bin, "kube-proxy"), "--config", n.file("kube-proxy.yaml"))
	}
}
