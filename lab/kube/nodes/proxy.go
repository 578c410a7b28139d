package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/lab/kube"
)

// KubeProxy gives Kubernetes' own service proxy as an Options.Proxy, in one of
// its modes: "nftables", "iptables".
func KubeProxy(mode string) func(context.Context, *Node) error {
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
