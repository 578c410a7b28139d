package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/kube/nodes"
)

// networks are four: science and telescope are macvlans on a device of the nodes, nics
// and antenna give pods whole NICs. The second of each is a secondary network. 192.0.2.1
// is the load balancer's address as pods see it when it hides the client (fullnat).
const networks = `apiVersion: fairlead.io/v1alpha1
kind: VirtualNetwork
metadata: {name: science}
spec:
  devices: [eth2]
  subnets: [{cidr: 172.31.0.0/24, gateway: 172.31.0.1, ranges: [{first: 172.31.0.100, last: 172.31.0.199}]}]
  mtu: 1400
  peerNetworks: [nics]
  allowedCIDRs: [192.0.2.1/32]
---
apiVersion: fairlead.io/v1alpha1
kind: VirtualNetwork
metadata: {name: nics}
spec:
  mode: host-device
  devices: [nic0, nic1]
  subnets: [{cidr: 172.31.1.0/24, gateway: 172.31.1.1}]
  peerNetworks: [science]
  allowedCIDRs: [192.0.2.1/32]
---
apiVersion: fairlead.io/v1alpha1
kind: VirtualNetwork
metadata: {name: telescope}
spec:
  devices: [eth2]
  subnets:
    - {cidr: 172.31.2.0/24, gateway: 172.31.2.1, ranges: [{first: 172.31.2.100, last: 172.31.2.199}]}
    - {cidr: "fd31:2::/64"}
  routes: [{to: 172.31.0.0/24}, {to: 192.0.2.0/24}]
  guaranteedRate: 100M
  maxRatePerHost: 40M
  allowedCIDRs: [192.0.2.0/24]
---
apiVersion: fairlead.io/v1alpha1
kind: VirtualNetwork
metadata: {name: antenna}
spec:
  mode: host-device
  devices: [nic2]
  subnets: [{cidr: 172.31.3.0/24, gateway: 172.31.3.1}]
  routes: [{to: 192.0.2.0/24}]
  allowedCIDRs: [192.0.2.0/24]
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: macvlan}
handler: macvlan
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nic}
handler: nic
`

// workload is pods of one RuntimeClass, two on each node, with a Service. Their kubelet
// cannot reach pods on its own device, so they have no probes.
const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 4
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      runtimeClassName: %[1]s
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: %[1]s}}}
      containers: [{name: web, image: %[2]s, args: [netexec, --http-port=8080]}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, annotations: {fairlead.io/forwarding-mode: fullnat}}
spec:
  type: LoadBalancer
  clusterIP: %[3]s
  selector: {app: %[1]s}
  ports: [{port: 80, targetPort: 8080}]
`

// workloads are named after their RuntimeClass, with the addresses of their Services.
var workloads = []struct{ name, cluster, vip string }{
	{"macvlan", "10.96.0.101", "10.1.1.1"}, {"nic", "10.96.0.102", "10.1.1.2"},
}

// story is the user's steps, one after the other.
func (w *world) story(ctx context.Context) error {
	before, err := w.everywhere()
	if err != nil {
		return err
	}
	seen := func(context.Context) error { return w.seen(before) }
	for _, step := range []func(context.Context) error{
		w.begin, w.deploy, seen, w.reach, w.serve, w.takeAll, w.killSandbox, w.restartController, w.rollOver, w.reach,
		w.observe, w.serveObservers, w.capped, w.apart, w.disturb, seen, w.observeNoMore, w.end, w.uninstall,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	err = w.await(ctx, "the nodes as they were", func() error {
		after, err := w.everywhere()
		if err == nil && !maps.Equal(after, before) {
			err = fmt.Errorf("\nbefore %q\nafter  %q", before, after)
		}
		return err
	})
	if err == nil {
		w.Say("no state is left: no lease, link, queue, record, pin or namespace, and all NICs are back")
	}
	return err
}

// seen checks that anything which could be left behind is visible while it exists.
func (w *world) seen(before map[string]string) error {
	now, err := w.everywhere()
	for _, n := range w.Nodes {
		for _, what := range []string{"links", "eth2", "/var/lib/cni/fairlead", "/run/netns", "/sys/fs/bpf/fairlead/vdn"} {
			if key := n.Name + " " + what; err == nil && now[key] == before[key] {
				err = fmt.Errorf("%s: pods on it do not show: %q", key, now[key])
			}
		}
	}
	return err
}

// begin installs everything, and starts the load balancer.
func (w *world) begin(ctx context.Context) error {
	if err := w.install(ctx); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "wait", "virtualnetwork", "--all", "--for=condition=Ready", "--timeout=1m"); err != nil {
		return err
	}
	w.Say("the controller has all networks of the API server, and both nodes applied its plan")
	return w.startBalancer()
}

// deploy starts all pods, and checks that each has the address of its lease.
func (w *world) deploy(ctx context.Context) error {
	image, err := w.Agnhost()
	if err != nil {
		return err
	}
	for _, l := range workloads {
		if err := w.Apply(ctx, fmt.Sprintf(workload, l.name, image, l.cluster)); err != nil {
			return err
		}
		if err := w.ready(ctx, l.name); err != nil {
			return err
		}
		w.Say("four pods of RuntimeClass %s are ready", l.name)
	}
	return w.leased(ctx, 8)
}

// ready waits for a Deployment.
func (w *world) ready(ctx context.Context, name string) error {
	_, err := w.Kubectl(ctx, "rollout", "status", "deployment/"+name, "--timeout=3m")
	return err
}

// leased waits until exactly n leases are up, each of a pod with that address.
func (w *world) leased(ctx context.Context, n int) error {
	return w.await(ctx, "leases", func() error {
		pods, err := w.Kubectl(ctx, "get", "pods", "--output", `jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{"\n"}{end}`)
		if err != nil {
			return err
		}
		shown, err := w.Kubectl(ctx, "get", "networkleases", "--output",
			`jsonpath={range .items[?(@.status.phase=="up")]}{.metadata.ownerReferences[0].name} {.status.addresses[0]}{"\n"}{end}`)
		if err != nil {
			return err
		}
		a, b := lines(pods), lines(strings.ReplaceAll(shown, "/24", ""))
		if !slices.Equal(a, b) || len(a) != n {
			return fmt.Errorf("%d pods %q, attachments %q; want %d of each", len(a), a, b, n)
		}
		return w.leases(n)
	})
}

func lines(text string) []string {
	all := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	slices.Sort(all)
	return all
}

// reach sends requests from every pod to pods of every other network and node.
func (w *world) reach(ctx context.Context) error {
	for _, l := range workloads {
		addrs, err := w.addresses(ctx, l.name)
		if err != nil {
			return err
		}
		clients, err := w.pods(ctx, "macvlan")
		if err != nil {
			return err
		}
		for _, a := range addrs {
			for _, from := range clients[:2] {
				if err := w.answers(ctx, from, netip.AddrPortFrom(a, 8080)); err != nil {
					return err
				}
			}
		}
	}
	w.Say("pods reach each other within a network: on one node, between nodes, and through the gateway")
	return nil
}

// serve sends requests to Services: to their cluster addresses from pods, through the
// service proxy, and to their VIPs from outside, through the load balancer.
func (w *world) serve(ctx context.Context) error {
	clients, err := w.pods(ctx, "macvlan")
	if err != nil {
		return err
	}
	for _, l := range workloads {
		if err := w.give(ctx, l.name, l.vip); err != nil {
			return err
		}
		if err := w.allAnswer(ctx, 4, l.cluster, func() (string, error) {
			return w.Kubectl(ctx, "exec", clients[0], "--", "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://"+l.cluster+"/hostname")
		}); err != nil {
			return err
		}
		if err := w.allAnswer(ctx, 4, l.vip, func() (string, error) { return w.get(ctx, l.vip) }); err != nil {
			return err
		}
		w.Say("all pods of %s answer at ClusterIP %s and at VIP %s", l.name, l.cluster, l.vip)
	}
	return nil
}

// give sets the VIP of a Service.
func (w *world) give(ctx context.Context, service, vip string) error {
	patch := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, vip)
	_, err := w.Kubectl(ctx, "patch", "service", service, "--subresource=status", "--type=merge", "--patch", patch)
	return err
}

// allAnswer waits until n pods have answered.
func (w *world) allAnswer(ctx context.Context, n int, what string, ask func() (string, error)) error {
	seen := map[string]bool{}
	return w.await(ctx, what, func() error {
		name, err := ask()
		if err == nil {
			seen[name] = true
		}
		if len(seen) < n {
			return fmt.Errorf("%d of %d pods have answered; the last: %q, %v", len(seen), n, name, err)
		}
		return nil
	})
}

// takeAll requests one NIC more than there are: the pod waits, with a reason, until one
// is released.
func (w *world) takeAll(ctx context.Context) error {
	if _, err := w.Kubectl(ctx, "scale", "deployment/nic", "--replicas=5"); err != nil {
		return err
	}
	if err := w.await(ctx, "a pod that gets no NIC says so", func() error {
		said, err := w.Kubectl(ctx, "get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "--output", `jsonpath={.items[*].message}`)
		if err == nil && !strings.Contains(said, "nic0") {
			err = fmt.Errorf("events: %q", said)
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "scale", "deployment/nic", "--replicas=4"); err != nil {
		return err
	}
	w.Say("a fifth pod finds no free NIC, and its error names it")
	return w.leased(ctx, 8)
}

// killSandbox kills the process that holds a pod's namespaces: kubelet creates a new
// sandbox, with another container's lease.
func (w *world) killSandbox(ctx context.Context) error {
	for _, l := range workloads {
		if err := w.recreate(ctx, l.name); err != nil {
			return err
		}
	}
	w.Say("pods whose sandbox is killed get a new one, and the old lease is released")
	return w.leased(ctx, 8)
}

// recreate kills the sandbox of one of a Deployment's pods, and waits until it has a new
// sandbox and a new lease.
func (w *world) recreate(ctx context.Context, name string) error {
	pods, err := w.pods(ctx, name)
	if err != nil {
		return err
	}
	uid, err := w.Kubectl(ctx, "get", "pod", pods[0], "--output", "jsonpath={.metadata.uid}")
	if err != nil {
		return err
	}
	was, err := w.leaseOf(pods[0])
	if err != nil {
		return err
	}
	if err := killIn(uid, "pause"); err != nil {
		return err
	}
	if err := w.await(ctx, "another sandbox", func() error {
		now, err := w.leaseOf(pods[0])
		if err == nil && now == was {
			err = fmt.Errorf("%s still has the lease %s", pods[0], was)
		}
		return err
	}); err != nil {
		return err
	}
	return w.ready(ctx, name)
}

// killIn kills a pod's process by name; pause holds its namespaces.
func killIn(uid, program string) error {
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, path := range all {
		group, _ := os.ReadFile(path) // processes come and go
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		if strings.Contains(string(group), uid) && string(name) == program+"\n" {
			return exec.Command("kill", "-KILL", filepath.Base(filepath.Dir(path))).Run()
		}
	}
	return fmt.Errorf("no %s of pod %s is found", program, uid)
}

// rollOver replaces all pods, with the controller running again.
func (w *world) rollOver(ctx context.Context) error {
	for _, l := range workloads {
		if _, err := w.Kubectl(ctx, "rollout", "restart", "deployment/"+l.name); err != nil {
			return err
		}
		if err := w.ready(ctx, l.name); err != nil {
			return err
		}
	}
	w.Say("all pods are replaced")
	return w.leased(ctx, 8)
}

// restartController kills the controller, and has kubelet restart it.
func (w *world) restartController(ctx context.Context) error {
	before, err := w.leaseText()
	if err != nil {
		return err
	}
	if err := killIn(w.controller.uid, "fairlead"); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "wait", "pod", "--selector", "app.kubernetes.io/component=vdn",
		"--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "--timeout=1m"); err != nil {
		return err
	}
	if err := w.await(ctx, "the controller answers", func() error { return w.leases(-1) }); err != nil {
		return err
	}
	after, err := w.leaseText()
	if err == nil && after != before {
		err = fmt.Errorf("leases before %s, after %s", before, after)
	}
	w.Say("the killed and restarted controller has all leases")
	return err
}

// end deletes everything.
func (w *world) end(ctx context.Context) error {
	for _, l := range workloads {
		if _, err := w.Kubectl(ctx, "delete", "service,deployment", l.name, "--timeout=1m"); err != nil {
			return err
		}
	}
	if err := w.leased(ctx, 0); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "delete", "virtualnetwork", "--all", "--timeout=1m"); err != nil {
		return err
	}
	return w.await(ctx, "no network", func() error { return w.stored("networks", "[]") })
}

func (w *world) await(ctx context.Context, what string, f func() error) error {
	return nodes.Await(ctx, what, 2*time.Minute, f)
}
