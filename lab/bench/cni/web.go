package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/budget"
	"github.com/fairlead/fairlead/lab/multisite"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// WebOptions configures Web.
type WebOptions struct {
	// Binary is the fairlead binary to run in the lab.
	Binary string
	// Cases contains the names of the cases to measure.
	Cases []string
	// Pods contains the numbers of web pods, in ascending order.
	Pods []int
	// Rounds is how often each figure is measured, in alternation with the others.
	Rounds int
	// Seconds and Connections are the duration of each measurement and the number of
	// connections.
	Seconds     float64
	Connections int
	// Logs is the folder for the logs of all agents. If it is empty, the logs disappear
	// with the sandbox.
	Logs     string
	Progress io.Writer
}

// webCases contains all cases in their order.
var webCases = []struct {
	name string
	run  func(context.Context, WebOptions, *bench.Report) error
}{
	{"balancers", webBalancers},
	{"guest", webGuest},
	{"scale", webScale},
}

// WebCases returns their names.
func WebCases() (names []string) {
	for _, c := range webCases {
		names = append(names, c.name)
	}
	return names
}

// DefaultWebOptions returns the options behind the published figures. The number of
// connections is the papers'.
func DefaultWebOptions() WebOptions {
	return WebOptions{Cases: WebCases(), Pods: []int{1, 4, 8, 16, 20}, Rounds: 3, Seconds: 1.5, Connections: 800}
}

// Validate reports which options are invalid.
func (o WebOptions) Validate() error {
	var errs []error
	for _, name := range o.Cases {
		if !slices.Contains(WebCases(), name) {
			errs = append(errs, fmt.Errorf("--case: %q is not one of %v", name, WebCases()))
		}
	}
	if len(o.Pods) < 2 || !slices.IsSorted(o.Pods) || o.Pods[0] != 1 || slices.Max(o.Pods) > mostPods {
		errs = append(errs, fmt.Errorf("--pods: %v: want ascending numbers from 1 to at most %d", o.Pods, mostPods))
	}
	if !(o.Seconds >= 0.1 && o.Seconds <= 3600) {
		errs = append(errs, fmt.Errorf("--seconds: %g is not between 0.1 and 3600", o.Seconds))
	}
	for _, n := range []struct {
		flag        string
		value, most int
	}{{"--rounds", o.Rounds, 1000}, {"--connections", o.Connections, 1000}} {
		if n.value < 1 || n.value > n.most {
			errs = append(errs, fmt.Errorf("%s: %d is not between 1 and %d", n.flag, n.value, n.most))
		}
	}
	return errors.Join(errs...)
}

// Web measures HTTP requests to web pods through load balancers with a budget of CPU
// time: Fig. 10 and 13 of "A Portable Load Balancer with ECMP Redundancy for Container
// Clusters", Fig. 11 to 13 of "A portable load balancer for Kubernetes clusters". It must
// run in the sandbox. If it returns an error, the report contains the cases before.
func Web(ctx context.Context, o WebOptions) (*bench.Report, error) {
	r := bench.New("web")
	for _, program := range []string{webServer, webClient} {
		if _, err := exec.LookPath(program); err != nil {
			return r, fmt.Errorf("scripts/deps.sh web installs nginx and wrk: %w", err)
		}
	}
	if err := os.Setenv("TMPDIR", sandbox.WorkDir); err != nil {
		return r, err
	}
	if o.Logs == "" {
		o.Logs = sandbox.WorkDir
	}
	for _, c := range webCases {
		if !slices.Contains(o.Cases, c.name) {
			continue
		}
		if err := c.run(ctx, o, r); err != nil {
			return r, fmt.Errorf("case %s: %w", c.name, err)
		}
	}
	r.Note("web: %d connections of wrk with keep-alive from Daejeon's server for %g s, after %s; nginx in pods of Busan, each with a budget of %g of a CPU; budgets are those of the kernel's deadline scheduler",
		o.Connections, o.Seconds, o.warmUp(), podBudget)
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("not cleaned up: %v", left)
	}
	return r, nil
}

func (o WebOptions) logf(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }

const (
	// podBudget is the share of a CPU of each web pod. All pods together leave the
	// machine idle, so that nothing but pods and load balancers limits requests.
	podBudget = 0.01
	// generous is the budget of a load balancer's machine that limits nothing, and idle
	// that of a pod without requests.
	generous, idle = 0.5, 0.001
	// clientBudget is the budget of each thread of the client, and gatewayBudget that of
	// the router. They limit nothing either, but are reserved on a busy machine.
	clientBudget, gatewayBudget = 0.2, 0.2
	// webPort is the port of the pods' web servers.
	webPort = 80
)

// web is the network with web pods behind load balancers. Daejeon's node stands for the
// load balancers' machine: one kernel thread per queue of its network card processes all
// of its packets, and has its budget of CPU time.
type web struct {
	*network
	o    WebOptions
	card []budget.KernelThread
	pods map[string][]webPod // by the kind of their network
	all  []*balanced
}

func newWeb(ctx context.Context, o WebOptions, kinds ...string) (w *web, err error) {
	n, err := newNetwork(ctx, Options{Binary: o.Binary, Pods: o.Pods, Logs: o.Logs, Progress: o.Progress}, 0)
	if err != nil {
		return nil, err
	}
	w = &web{network: n, o: o, pods: map[string][]webPod{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	client, gateway := n.Lab.Host(n.Daejeon.Server), n.Lab.Host(n.Daejeon.Gateway)
	if err := client.Offload(podDev, false); err != nil {
		return w, err
	}
	if err := w.queues(ctx, 1); err != nil {
		return w, err
	}
	if err := addQueue(gateway, "node"); err != nil {
		return w, err
	}
	for _, kind := range kinds {
		if err := w.addPods(ctx, kind); err != nil {
			return w, fmt.Errorf("web pods in %s: %w", kind, err)
		}
	}
	return w, nil
}

func (w *web) Close() error { return errors.Join(w.network.Close(), os.RemoveAll(pins)) }

// queues sets the number of queues of the card of the load balancers' machine. The card
// at the other end has a thread, too, so that the machine is not charged for its work.
func (w *web) queues(ctx context.Context, n int) error {
	if len(w.card) == n {
		return nil
	}
	// A queue that is full while it changes stays stopped.
	for _, thread := range w.card {
		if err := thread.Limit(generous / float64(len(w.card))); err != nil {
			return err
		}
	}
	if err := bench.Pause(ctx, time.Second); err != nil {
		return err
	}
	node, gateway := w.Lab.Host(w.Daejeon.Node), w.Lab.Host(w.Daejeon.Gateway)
	if err := errors.Join(node.Offload(multisite.NodeDev, false), gateway.Offload("node", false)); err != nil {
		return err
	}
	threads, err := gateway.ReceiveInThreads("node", n)
	for _, thread := range threads {
		err = errors.Join(err, thread.Limit(gatewayBudget/float64(n)))
	}
	if err != nil {
		return err
	}
	if w.card, err = node.ReceiveInThreads(multisite.NodeDev, n); err != nil {
		return err
	}
	return bench.Pause(ctx, 2*time.Second) // until the kernel has noticed that the link is up again
}

// addQueue lets a device wait for its peer (Linux 6.16), like a switch with buffers: all
// connections begin at the same moment.
func addQueue(h *lab.Host, dev string) error {
	link, err := h.Netlink().LinkByName(dev)
	if err != nil {
		return err
	}
	return h.Netlink().QdiscReplace(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
		QdiscType:  "pfifo",
	})
}

// vip returns the nth address for services.
func (w *web) vip(n int) netip.Addr { return multisite.Nth(w.Daejeon.Bridge(15), 1+n) }

// addBalancer adds a load balancer in a pod, and waits until it answers.
func (w *web) addBalancer(ctx context.Context, maker, kind string) (*balanced, error) {
	number := len(w.all)
	b := &balanced{kind: kind, maker: maker, vip: w.vip(number), port: webPort}
	for _, p := range w.pods[kind] {
		b.servers = append(b.servers, p.addr)
	}
	w.all = append(w.all, b)
	err := w.balance(ctx, b, balancerPod+number)
	if err == nil {
		err = w.awaitWeb(ctx, b.at(slices.Max(w.o.Pods)))
	}
	if err != nil {
		return b, fmt.Errorf("%s: %w", b.name(), err)
	}
	return b, nil
}
