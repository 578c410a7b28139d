package kubeproxy

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
)

// kubeProxy is Kubernetes' own kube-proxy, with nftables and its defaults.
type kubeProxy struct {
	cluster *cluster
	proxy   *kube.Program
	// chains caches the chains of the Services. It is read again when a Service is
	// missing.
	chains map[netip.Addr]string
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
`, c.Kubeconfig, testbed.Endpoints, nodeName)
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return nil, err
	}
	return &kubeProxy{cluster: c, proxy: c.Program(bin, "kube-proxy", nil, "--config", path)}, nil
}

func (k *kubeProxy) name() string           { return "kube-proxy" }
func (k *kubeProxy) program() *kube.Program { return k.proxy }

func (k *kubeProxy) pause() time.Duration { return 5 * time.Millisecond }

// table is the table of kube-proxy's rules. Its map service-ips maps a Service's address
// to a chain, and a map in that chain's only rule selects an endpoint.
var table = &nftables.Table{Name: "kube-proxy", Family: nftables.TableFamilyIPv4}

const chainPrefix = "service-"

// gone reports whether the kernel's error means that something does not exist, or no
// longer does. The library preserves only the text of the error.
func gone(err error) bool {
	return strings.HasSuffix(err.Error(), unix.ENOENT.Error()) || strings.HasSuffix(err.Error(), unix.EINTR.Error())
}

// readChains reads the chain of each Service.
func (k *kubeProxy) readChains() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	elements, err := conn.GetSetElements(&nftables.Set{Name: "service-ips", Table: table})
	if err != nil && !gone(err) {
		return fmt.Errorf("list the Services: %w", err)
	}
	k.chains = make(map[netip.Addr]string, len(elements))
	for _, e := range elements {
		if at := bytes.Index(e.Val, []byte(chainPrefix)); at >= 0 && len(e.Key) >= 4 {
			name, _, _ := bytes.Cut(e.Val[at:], []byte{0})
			k.chains[netip.AddrFrom4([4]byte(e.Key[:4]))] = string(name)
		}
	}
	return nil
}

// endpoints returns the endpoints to which a Service's clients are sent.
func (k *kubeProxy) endpoints(conn *nftables.Conn, service netip.Addr) (all []netip.Addr, err error) {
	name, known := k.chains[service]
	if !known {
		return nil, nil
	}
	rules, err := conn.GetRules(table, &nftables.Chain{Name: name, Table: table})
	for _, r := range rules {
		for _, x := range r.Exprs {
			lookup, is := x.(*expr.Lookup)
			if !is || !lookup.IsDestRegSet {
				continue
			}
			elements, err := conn.GetSetElements(&nftables.Set{Name: lookup.SetName, Table: table})
			if err != nil && !gone(err) {
				return nil, fmt.Errorf("list the endpoints of %s: %w", service, err)
			}
			for _, e := range elements {
				if len(e.Val) >= 4 {
					all = append(all, netip.AddrFrom4([4]byte(e.Val[:4])))
				}
			}
		}
	}
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("list the rules of %s: %w", service, err)
	}
	return all, nil
}

func (k *kubeProxy) complete() (bool, error) {
	err := k.readChains()
	return len(k.chains) >= k.cluster.services, err
}

func (k *kubeProxy) verify() error {
	var all []pair
	for i := range k.cluster.services {
		for _, a := range k.cluster.endpointsOf(i) {
			all = append(all, pair{kube.ServiceAddr(i), a})
		}
	}
	held, err := k.held(all)
	for i, one := range held {
		if !one {
			return fmt.Errorf("endpoint %s of Service %s is not in the kernel", all[i].endpoint, all[i].service)
		}
	}
	return err
}

func (k *kubeProxy) held(pairs []pair) ([]bool, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	defer conn.CloseLasting()
	out := make([]bool, len(pairs))
	read := false
	var of netip.Addr
	var all []netip.Addr
	for i, p := range pairs {
		if _, known := k.chains[p.service]; !known && !read {
			read = true
			if err := k.readChains(); err != nil {
				return nil, err
			}
		}
		if p.service != of {
			of = p.service
			if all, err = k.endpoints(conn, of); err != nil {
				return nil, err
			}
		}
		out[i] = slices.Contains(all, p.endpoint)
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
		if t.Name == table.Name {
			conn.DelTable(t)
		}
	}
	return conn.Flush()
}
