// Package nodes runs a whole Kubernetes on one machine: the control plane of lab/kube
// with controllers, scheduler and DNS, and nodes with containerd and kubelet that run
// real pods. Each node has its own namespaces, and its own cgroup as the parent of its
// cgroups:
//
//	cp 172.30.0.10 ──┐
//	n1 172.30.0.11 ──┤ lan     pods of n1: 10.244.1.0/24
//	n2 172.30.0.12 ──┘         pods of n2: 10.244.2.0/24
//
// Pods whose RuntimeClass has the handler Flat have addresses of lan itself, through a
// bridge on their node and its second device, eth1, as in a secondary network.
//
// There is no service proxy unless Options.Proxy starts one, because service proxies are
// under test here. It needs root, a sandbox with Net around it (lab/sandbox), and what
// scripts/deps.sh cluster installs.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/kubeclient"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// PodCIDR is the range of pod addresses; node n has 10.244.n.0/24.
const PodCIDR = "10.244.0.0/16"

// Flat is the handler of pods on the nodes' own segment.
const Flat = "flat"

// segment is the network of the control plane, nodes and flat pods.
var segment = netip.MustParsePrefix("172.30.0.0/24")

// flatPods is the number of flat pod addresses per node, for the first eight nodes.
const flatPods = 16

// flatAddr is the address of a node's flat pod.
func flatAddr(n, pod int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 30, 0, byte(112 + flatPods*(n%8) + pod)})
}

// Options configure a cluster.
type Options struct {
	// Nodes is the number of nodes; 0 means 2, at most 100.
	Nodes int
	// Logs is the folder for the logs of all programs.
	Logs string
	// Images are files with additional images for the nodes, in the format of ctr images
	// import.
	Images []string
	// Plugins are additional network plugins for the container runtime, Handlers
	// additional pod networks by RuntimeClass.
	Plugins  []string
	Handlers []Handler
	// Path lists folders in which Tool's programs find others.
	Path []string
	// Around, if not nil, adds hosts and links outside the cluster to the network.
	Around func(*lab.Topology)
	// Proxy, if not nil, is called for each node when all are ready.
	Proxy Proxy
}

// Handler is the network of pods whose RuntimeClass has this handler.
type Handler struct {
	Name string
	// Network is a list of network plugins (conflist): a template with a node's Name,
	// Addr and Dir, in which cni/pod.conflist is the cluster's default network, the CA,
	// and an administrator's Kubeconfig.
	Network string
}

// Proxy starts a service proxy on a node.
type Proxy func(context.Context, *Node) error

// Cluster is a running Kubernetes cluster.
type Cluster struct {
	*kube.Cluster
	// Control is the host of the control plane, from which the server and all nodes and
	// pods can be reached.
	Control *lab.Host
	Nodes   []*Node
	// Binaries is the folder with Kubernetes' programs.
	Binaries string

	opts     Options
	began    time.Time
	work     string // data; removed with the sandbox
	lab      *lab.Lab
	programs []*kube.Program
}

// Programs are the programs of a cluster that scripts/kube.sh builds. Missing ones are
// built, which must happen before the sandbox starts.
var Programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "coredns", "agnhost", "pause"}

var controlAddr = netip.AddrFrom4([4]byte{172, 30, 0, 10})

func nodeAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{172, 30, 0, byte(10 + n)}) }
func podCIDR(n int) string      { return fmt.Sprintf("10.244.%d.0/24", n) }

// New starts everything and waits until all nodes are ready. If it fails, it leaves
// nothing behind but logs.
func New(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	c := &Cluster{opts: o, began: time.Now(), work: filepath.Join(sandbox.WorkDir, "kube")}
	for _, step := range []func(context.Context) error{c.prepare, c.startControl, c.startNodes, c.awaitNodes, c.startProxies} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("cluster: %w", err), c.Close())
		}
	}
	return c, nil
}

func (c *Cluster) prepare(ctx context.Context) error {
	for _, dir := range []string{c.work, c.opts.Logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := sweepCgroups(); err != nil {
		return err
	}
	var err error
	if c.Binaries, err = kube.Binaries(Programs...); err != nil {
		return err
	}
	t := topology(c.opts.Nodes)
	if c.opts.Around != nil {
		c.opts.Around(&t)
	}
	c.lab, err = lab.Build(ctx, t)
	return err
}

func topology(nodes int) lab.Topology {
	t := lab.Topology{
		Title:    "a cluster",
		Hosts:    []lab.HostSpec{{Name: "cp", Is: "control plane", Forward: true}},
		Switches: []lab.SwitchSpec{{Name: "lan"}},
	}
	routes := func(e lab.End, but int) lab.End {
		for n := range nodes {
			if n+1 != but {
				e = e.Via(nodeAddr(n+1).String(), podCIDR(n+1))
			}
		}
		return e
	}
	plug := func(host string, addr netip.Addr) lab.End {
		return lab.At(host, "eth0", netip.PrefixFrom(addr, 24).String())
	}
	t.Links = append(t.Links, lab.Link{A: routes(plug("cp", controlAddr), 0), B: lab.Port("lan")})
	for n := 1; n <= nodes; n++ {
		name := fmt.Sprintf("n%d", n)
		t.Hosts = append(t.Hosts, lab.HostSpec{Name: name, Is: "node", Forward: true})
		// Without a default route, packets to a Service would not reach the hook of a
		// proxy.
		end := routes(plug(name, nodeAddr(n)), n).Via(controlAddr.String(), "default")
		t.Links = append(t.Links, lab.Link{A: end, B: lab.Port("lan")}, lab.Link{A: lab.At(name, "eth1"), B: lab.Port("lan")})
	}
	return t
}

// startNodes starts the nodes one at a time, because they share disk and CPUs.
func (c *Cluster) startNodes(ctx context.Context) error {
	images, err := c.makeImages()
	if err != nil {
		return err
	}
	images = append(images, c.opts.Images...)
	for n := 1; n <= c.opts.Nodes; n++ {
		node, err := newNode(c, n)
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
		if err := node.start(ctx, images); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	return nil
}

// awaitNodes waits until every node is ready, and until pods can be created: each
// namespace needs its service account.
func (c *Cluster) awaitNodes(ctx context.Context) error {
	scheme, err := kubeclient.Scheme(corev1.AddToScheme)
	if err != nil {
		return err
	}
	api, err := kubeclient.Connect(c.Config, scheme, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	core := api[corev1.SchemeGroupVersion]
	accounts := kubeclient.Of[*corev1.ServiceAccount, *corev1.ServiceAccountList](core, "serviceaccounts", "default")
	nodes := kubeclient.Of[*corev1.Node, *corev1.NodeList](core, "nodes", "")
	return await(ctx, func() error {
		if _, err := accounts.Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		for _, n := range c.Nodes {
			node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := ready(node); err != nil {
				return fmt.Errorf("%w; see %s", err, n.log("kubelet"))
			}
		}
		return nil
	})
}

func ready(n *corev1.Node) error {
	for _, taint := range n.Spec.Taints {
		return fmt.Errorf("node %s has the taint %s", n.Name, taint.Key)
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("node %s is not ready: %s", n.Name, c.Message)
	}
	return fmt.Errorf("node %s says nothing of itself", n.Name)
}

// await calls f repeatedly until it returns nil or the context ends.
func await(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *Cluster) startProxies(ctx context.Context) error {
	if c.opts.Proxy == nil {
		return nil
	}
	for _, n := range c.Nodes {
		if err := c.opts.Proxy(ctx, n); err != nil {
			return fmt.Errorf("proxy of node %s: %w", n.Name, err)
		}
	}
	return nil
}

// Host returns a host of the network by its name, or nil.
func (c *Cluster) Host(name string) *lab.Host { return c.lab.Host(name) }

// Close removes everything: programs, containers, cgroups, namespaces.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.close())
	}
	for _, p := range c.programs {
		errs = append(errs, p.Stop())
	}
	if c.Cluster != nil {
		errs = append(errs, c.Cluster.Close())
	}
	if c.lab != nil {
		errs = append(errs, c.lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.work))...)
}
