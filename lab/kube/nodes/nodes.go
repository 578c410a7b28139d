// Package nodes runs a whole Kubernetes on one machine: the control plane of
// lab/kube with controllers, scheduler and DNS, and nodes with containerd and
// kubelet whose pods really run. Each node has namespaces of its own, and cgroups
// below one of its own:
//
//	cp 172.30.0.10 ──┐
//	n1 172.30.0.11 ──┤ lan     pods of n1: 10.244.1.0/24
//	n2 172.30.0.12 ──┘         pods of n2: 10.244.2.0/24
//
// Pods whose RuntimeClass has the handler Flat have addresses of lan itself, by a
// bridge of their node and a device of its own, eth1, as a secondary network gives
// them.
//
// There is no service proxy but what Options.Proxy starts: to see whether one
// does its work is what this is for. It needs root, a sandbox with Net around it
// (lab/sandbox), and what scripts/deps.sh cluster installs.
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

// PodCIDR is where pods have their addresses; node n has 10.244.n.0/24.
const PodCIDR = "10.244.0.0/16"

// Flat is the handler of pods at the nodes' own segment.
const Flat = "flat"

// segment is what control plane, nodes and flat pods are at.
var segment = netip.MustParsePrefix("172.30.0.0/24")

// flatPods is for how many a node has addresses; of the first eight nodes each.
const flatPods = 16

// flatAddr is the address of a node's flat pod.
func flatAddr(n, pod int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 30, 0, byte(112 + flatPods*(n%8) + pod)})
}

// Options say what is run.
type Options struct {
	// Nodes is how many; 2 where 0, at most 100.
	Nodes int
	// Logs is the folder for the logs of all programs.
	Logs string
	// Images are files with images, beside those that nodes have anyway, as ctr
	// images import takes them.
	Images []string
	// Plugins are programs that the container runtime finds beside the network plugins
	// that there are, Handlers further networks of pods by their RuntimeClass.
	Plugins  []string
	Handlers []Handler
	// Path are folders where Tool's programs find others.
	Path []string
	// Around, where not nil, adds to the network what is not the cluster's.
	Around func(*lab.Topology)
	// Proxy, where not nil, is called for each node as soon as all are ready.
	Proxy Proxy
}

// Handler is what pods have as their network whose RuntimeClass has this handler.
type Handler struct {
	Name string
	// Network is a list of network plugins (conflist), a template that knows a node's
	// Name, Addr and Dir, where cni/pod.conflist is the cluster's own, CA and the
	// Kubeconfig of who may do everything.
	Network string
}

// Proxy starts a service proxy on a node.
type Proxy func(context.Context, *Node) error

// Cluster is a Kubernetes that runs.
type Cluster struct {
	*kube.Cluster
	// Control is the host of the control plane: from there the server and all
	// nodes and pods are reached.
	Control *lab.Host
	Nodes   []*Node
	// Binaries is the folder with Kubernetes' programs.
	Binaries string

	opts     Options
	began    time.Time
	work     string // data; gone with the sandbox
	lab      *lab.Lab
	programs []*kube.Program
}

// Programs are those of scripts/kube.sh that a cluster is made of. They are built
// where they are not there, which must happen before the sandbox.
var Programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "coredns", "agnhost", "pause"}

var controlAddr = netip.AddrFrom4([4]byte{172, 30, 0, 10})

func nodeAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{172, 30, 0, byte(10 + n)}) }
func podCIDR(n int) string      { return fmt.Sprintf("10.244.%d.0/24", n) }

// New starts everything and waits until all nodes are ready. Where it fails it
// leaves nothing behind but logs.
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
		// Without a default route nothing sent to a Service would get as far
		// as to where a proxy takes it.
		end := routes(plug(name, nodeAddr(n)), n).Via(controlAddr.String(), "default")
		t.Links = append(t.Links, lab.Link{A: end, B: lab.Port("lan")}, lab.Link{A: lab.At(name, "eth1"), B: lab.Port("lan")})
	}
	return t
}

// startNodes starts them one after the other: they have the same disk and
// processors.
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

// awaitNodes waits until every node says that pods may come, and pods may: each
// namespace must have got its service account.
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

// await asks f again and again until it answers nil or the context ends.
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

// Host is a host of the network by its name; nil where there is none.
func (c *Cluster) Host(name string) *lab.Host { return c.lab.Host(name) }

// Close ends everything: programs, containers, cgroups, namespaces.
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
