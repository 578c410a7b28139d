package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/kube/nodes"
	"github.com/fairlead/fairlead/lab/load"
)

// web is what a new user exposes. Its pods return the client's address. Before they
// terminate they keep serving until everyone knows of it. They have CPU requests, so that
// they run on a machine on which agents load their programs.
const web = `apiVersion: fairlead.io/v1alpha1
kind: AddressPool
metadata: {name: web}
spec: {addresses: [10.1.1.0/24]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 20
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
        - name: web
          image: %s
          args: [netexec, --http-port=8080, --delay-shutdown=8]
          resources: {requests: {cpu: 300m}}
          readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, timeoutSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// story is the user's steps, one after the other.
func (w *world) story(ctx context.Context) error {
	before := map[string]string{}
	for _, n := range w.Nodes {
		text, err := w.traces(n)
		if err != nil {
			return err
		}
		before[n.Name] = text
	}
	if err := w.startRouter(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{w.install, w.expose, w.look, w.dedicated, w.drain, w.update} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	left, err := w.added(before)
	if err != nil {
		return err
	}
	if n := strings.Count(left, "/sys/fs/bpf/fairlead/proxy/"); n < len(w.Nodes) || !strings.Contains(left, "eth0 xdp") {
		return fmt.Errorf("the state of the nodes cannot be read: %q", left)
	}
	if err := w.remove(ctx); err != nil {
		return err
	}
	if left, err = w.added(before); left != "" || err != nil {
		return errors.Join(err, fmt.Errorf("left on the nodes:\n%s", left))
	}
	w.Say("nothing is left on the nodes: no program, filter, route, address, rule or pin")
	return nil
}

// reflected reports whether a reflector is installed.
func (w *world) reflected() bool {
	return slices.Contains(ways[w.by].parts, "deployment/fairlead-reflector")
}

func (w *world) routerSocket() string { return filepath.Join(w.work, "router.sock") }

// startRouter accepts the load balancers' sessions. Nobody uses BFD: a machine that runs
// two nodes and their clients is too slow for it.
func (w *world) startRouter() error {
	log, err := os.Create(filepath.Join(w.logs, "router.log"))
	if err != nil {
		return err
	}
	args := []string{"router", "--bfd=false", "--router-id", routerAddr, "--socket", w.routerSocket()}
	if w.reflected() {
		args = append(args, "--peer", w.Nodes[0].Addr.String())
	} else {
		args = append(args, "--listen-range", "172.30.0.0/24")
	}
	cmd := exec.Command(filepath.Join(w.root, "bin/fairlead"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	_, err = w.Host("router").Start(cmd)
	return err
}

func (w *world) install(ctx context.Context) error {
	how := ways[w.by]
	if err := how.install(w, ctx); err != nil {
		return err
	}
	for _, what := range how.parts {
		if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "status", what, "--timeout=3m"); err != nil {
			return err
		}
	}
	w.Say("installed by the %s: ready are %s", w.by, strings.Join(how.parts, ", "))
	return nil
}

// expose waits for the address, and for answers of all pods through both nodes.
func (w *world) expose(ctx context.Context) error {
	image, err := w.Agnhost()
	if err != nil {
		return err
	}
	if err := w.apply(ctx, "web.yaml", fmt.Sprintf(web, image)); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "rollout", "status", "deployment/web", "--timeout=2m"); err != nil {
		return err
	}
	vip, err := w.vip(ctx, "web")
	if err != nil {
		return err
	}
	w.Say("the Deployment web runs; its Service has the address %s", vip)
	if err := w.routed(ctx, vip, w.Nodes[0].Addr.String(), w.Nodes[1].Addr.String()); err != nil {
		return err
	}
	if err := w.answered(ctx, vip); err != nil {
		return err
	}
	from, err := w.get(ctx, vip, "/clientip")
	if err == nil && !strings.HasPrefix(from, clientAddr+":") {
		err = fmt.Errorf("a pod saw the client as %s: it is %s", from, clientAddr)
	}
	w.Say("the client behind the router received replies from all 4 pods, advertised by both nodes; they saw it as %s", from)
	return err
}

// look runs the query commands of an operator.
func (w *world) look(ctx context.Context) error {
	for name, command := range map[string][]string{"status": {"status"}, "services": {"get", "services"}} {
		said, err := w.Kubectl(ctx, append([]string{"fairlead"}, command...)...)
		if err != nil {
			return err
		}
		for _, n := range w.Nodes {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(n.Name) + `(:| )`).MatchString(said) {
				return fmt.Errorf("kubectl fairlead %s does not show node %s:\n%s", name, n.Name, said)
			}
		}
		if err := w.write(w.logs, name+".txt", said); err != nil {
			return err
		}
	}
	w.Say("kubectl fairlead status and get services answer for both nodes")
	return w.reported(ctx, "web")
}

// ask starts clients of a VIP, with one request per connection.
func (w *world) ask(ctx context.Context) (*load.Client, netip.Addr, error) {
	vip, err := w.vip(ctx, "web")
	if err != nil {
		return nil, vip, err
	}
	clients, err := load.Start(ctx, load.Config{
		Dial: w.Host("client").Dial, Target: netip.AddrPortFrom(vip, 80), OneShotRate: 50, Path: "/hostname",
	})
	return clients, vip, err
}

// update replaces all agents while clients send requests: one load balancer is always
// available.
func (w *world) update(ctx context.Context) error {
	clients, vip, err := w.ask(ctx)
	if err != nil {
		return err
	}
	defer clients.Stop()
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "restart", "daemonset/fairlead-agent"); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "status", "daemonset/fairlead-agent", "--timeout=3m")
		ended <- err
	}()
	least := len(w.Nodes)
	for again := true; again; {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			again = false
		case <-time.After(100 * time.Millisecond):
			table, err := w.onRouter("ip", "route", "show", vip.String())
			if err != nil {
				return err
			}
			ways := 0
			for _, n := range w.Nodes {
				ways += min(1, strings.Count(table, n.Addr.String()))
			}
			least = min(least, ways)
		}
	}
	clients.Stop()
	counts := clients.Total()
	w.Say("all agents were replaced, with at least %d load balancers: %d requests, %d failed %v", least, counts.Requests, counts.Failed, counts.Reasons)
	if least == 0 || counts.Requests == 0 || counts.Failed > 0 {
		return fmt.Errorf("while all agents were replaced, the router had at least %d next hops, and %d of %d requests failed", least, counts.Failed, counts.Requests)
	}
	return nil
}

// drain evicts all pods of a node while clients send requests.
func (w *world) drain(ctx context.Context) error {
	clients, _, err := w.ask(ctx)
	if err != nil {
		return err
	}
	defer clients.Stop()
	node, began := w.Nodes[1].Name, time.Now()
	if _, err := w.Kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=2m"); err != nil {
		return err
	}
	drained := time.Since(began)
	// The load balancer on it is deleted too, and returns.
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "delete", "pods", "--field-selector", "spec.nodeName="+node,
		"--selector", "app.kubernetes.io/component=agent", "--timeout=2m"); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "--namespace", "fairlead", "rollout", "status", "daemonset/fairlead-agent", "--timeout=2m"); err != nil {
		return err
	}
	clients.Stop()
	counts := clients.Total()
	w.Say("%s was drained within %.1f s and its balancer restarted: %d requests, %d failed %v",
		node, drained.Seconds(), counts.Requests, counts.Failed, counts.Reasons)
	if counts.Requests == 0 || counts.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed while node %s was drained", counts.Failed, counts.Requests, node)
	}
	if err := w.knowEachOther(ctx); err != nil {
		return err
	}
	_, err = w.Kubectl(ctx, "uncordon", node)
	return err
}

// knowEachOther checks that the load balancer that stayed has learned that the other one
// stopped.
func (w *world) knowEachOther(ctx context.Context) error {
	stayed, went := w.Nodes[0], w.Nodes[1]
	pod, err := w.Kubectl(ctx, "--namespace", "fairlead", "get", "pods", "--field-selector", "spec.nodeName="+stayed.Name,
		"--selector", "app.kubernetes.io/component=agent", "--output", "name")
	if err != nil {
		return err
	}
	log, err := w.Kubectl(ctx, "--namespace", "fairlead", "logs", strings.TrimSpace(pod))
	if err != nil {
		return err
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "other balancers draining") && strings.Contains(line, went.Addr.String()) {
			w.Say("the load balancer on %s knew that the one on %s was terminating", stayed.Name, went.Name)
			return nil
		}
	}
	return fmt.Errorf("the load balancer on %s did not learn that %s, on %s, was terminating", stayed.Name, went.Addr, went.Name)
}

// remove deletes everything, in the order of docs/kubernetes.md.
func (w *world) remove(ctx context.Context) error {
	if _, err := w.Kubectl(ctx, "delete", "-f", filepath.Join(w.work, "web.yaml"), "--timeout=2m"); err != nil {
		return err
	}
	if err := ways[w.by].cleanup(w, ctx); err != nil {
		return err
	}
	if err := ways[w.by].remove(w, ctx); err != nil {
		return err
	}
	w.Say("everything is deleted")
	return nil
}

// traces returns what could be left on a node, line by line, without the devices of its
// pods.
func (w *world) traces(n *nodes.Node) (string, error) {
	const script = `ip -o link | cut -d' ' -f2,3,4,5 | grep -v -e veth -e cni0
for dev in $(ls /sys/class/net); do case $dev in veth*|cni0) ;; *)
	ip -o link show $dev | grep -o 'xdp[^ ]*' | sed "s/^/$dev /"
	tc qdisc show dev $dev; tc filter show dev $dev ingress; tc filter show dev $dev egress ;; esac; done
ip -o address | grep -v -e veth -e cni0 | sed 's/ *valid_lft.*//'
ip route show table all | grep -v -e veth -e cni0; ip -6 route show table all | grep -v -e veth -e cni0; ip rule; ip -6 rule
find /sys/fs/bpf -mindepth 1
nft list ruleset 2>/dev/null; true`
	said, err := n.Place.Run(exec.Command("sh", "-c", script))
	if err != nil {
		return "", fmt.Errorf("inspect node %s: %w: %s", n.Name, err, said)
	}
	return said, nil
}

// added returns what was not there before, by node.
func (w *world) added(before map[string]string) (string, error) {
	var all strings.Builder
	for _, n := range w.Nodes {
		after, err := w.traces(n)
		if err != nil {
			return "", err
		}
		was := map[string]bool{}
		for line := range strings.Lines(before[n.Name]) {
			was[line] = true
		}
		for line := range strings.Lines(after) {
			if !was[line] {
				fmt.Fprintf(&all, "%s: %s", n.Name, line)
			}
		}
	}
	return all.String(), nil
}
