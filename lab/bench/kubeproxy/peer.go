package kubeproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/kube"
)

// kubeProxy is Kubernetes' own proxy, with nftables and its defaults.
type kubeProxy struct {
	cluster *cluster
	proxy   *kube.Program
}

func newKubeProxy(c *cluster) (*kubeProxy, error) {
	bin, err := kube.Binaries("kube-proxy")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(c.dir, "kube-proxy.yaml")
	config := fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %s}
clusterCIDR: %s
hostnameOverride: %s
conntrack: {maxPerCore: 0}
`, c.Kubeconfig, endpointRange, nodeName)
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return nil, err
	}
	return &kubeProxy{cluster: c, proxy: c.Program(bin, "kube-proxy", nil, "--config", path)}, nil
}

func (k *kubeProxy) name() string           { return "kube-proxy" }
func (k *kubeProxy) program() *kube.Program { return k.proxy }

// pause is long, since all rules are listed to find one.
func (k *kubeProxy) pause() time.Duration { return 20 * time.Millisecond }

const tableName = "kube-proxy"

// again is what the kernel answers where rules change while they are listed.
func again(err error) bool {
	return errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) || errors.Is(err, os.ErrNotExist)
}

// listed gives the endpoints for which there are rules. Their chains are named
// after them: "endpoint-HASH-NAMESPACE/NAME/tcp/PORT__ADDRESS/PORT". All of one
// change come in one step.
func (k *kubeProxy) listed() (map[netip.Addr]bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil && !again(err) {
		return nil, fmt.Errorf("list the chains: %w", err)
	}
	all := map[netip.Addr]bool{}
	for _, c := range chains {
		_, at, found := strings.Cut(c.Name, "__")
		text, _, _ := strings.Cut(at, "/")
		if a, err := netip.ParseAddr(text); found && err == nil {
			all[a] = true
		}
	}
	return all, nil
}

// services gives how many addresses of Services lead to rules.
func (k *kubeProxy) services() (int, error) {
	conn, err := nftables.New()
	if err != nil {
		return 0, err
	}
	set, err := conn.GetSetByName(&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}, "service-ips")
	if err != nil {
		return 0, err
	}
	elements, err := conn.GetSetElements(set)
	return len(elements), err
}

func (k *kubeProxy) complete() (bool, error) {
	all, err := k.listed()
	if err != nil || len(all) < k.cluster.services*k.cluster.endpoints {
		return false, err
	}
	n, err := k.services()
	if again(err) {
		return false, nil
	}
	return n >= k.cluster.services, err
}

func (k *kubeProxy) verify() error {
	all, err := k.listed()
	if err != nil {
		return err
	}
	for i := range k.cluster.services {
		for _, a := range k.cluster.endpointsOf(i) {
			if !all[a] {
				return fmt.Errorf("endpoint %s of Service %d has no rules in the kernel", a, i)
			}
		}
	}
	return nil
}

func (k *kubeProxy) held(pairs []pair) ([]bool, error) {
	all, err := k.listed()
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(pairs))
	for i, p := range pairs {
		out[i] = all[p.endpoint]
	}
	return out, nil
}

func (k *kubeProxy) clear() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == tableName {
			conn.DelTable(t)
		}
	}
	return conn.Flush()
}
