// Vdn runs pods of a cluster of two real nodes on virtually dedicated networks, with the
// controller, the nodes' daemon and the plugins installed by the plain manifests from the
// image that make image builds: with fairlead-cni as the pods' network, with macvlan and
// with dedicated NICs (RuntimeClass macvlan and nic), and as secondary networks with
// Multus (RuntimeClass multus). It creates, recreates, restarts and deletes pods, reaches
// them through Services, checks rate limits and isolation, and checks that nothing is
// left on the nodes or in the controller. Its exit code is 0 if all of that succeeds.
//
//	go run ./lab/kube/vdn
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/kube/nodes"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func main() {
	logs := flag.String("logs", "out/vdn", "the `folder` for logs")
	limit := flag.Duration("limit", 15*time.Minute, "how long all may take")
	flag.Parse()
	var wrong error
	if flag.NArg() > 0 {
		wrong = fmt.Errorf("unexpected arguments: %q", flag.Args())
	}
	w := &world{work: filepath.Join(sandbox.WorkDir, "files")}
	nodes.Job{
		Name: "vdn", Programs: []string{"kubectl", "multus"}, Logs: *logs, Limit: *limit,
		Prepare: w.prepare,
		Do: func(ctx context.Context, c *nodes.Cluster) error {
			w.Cluster = c
			w.Say("two nodes are ready")
			if err := w.story(ctx); err != nil {
				return errors.Join(err, w.writeState())
			}
			return nil
		},
	}.Main(wrong)
}

// world is a cluster, and the network around it:
//
//	client 192.0.2.10 ── eth1 lb ─┬─ eth0 172.30.0.2 ── lan, where the nodes are
//	                              └─ eth2 172.31.0.1 to 172.31.3.1 ── science ── n1, n2: eth2 (macvlan), nic0 to nic2 (host-device)
//
// lb is the gateway of all networks, and a load balancer.
type world struct {
	*nodes.Cluster
	root, work, logs string
	image            string                     // its name and tag
	controller       struct{ uid, addr string } // of its pod
}

// Addresses outside the cluster.
const (
	lbAddr     = "172.30.0.2"
	clientAddr = "192.0.2.10"
)

// token authenticates clients of the controller.
const token = "sesame"

// nics is the number of NICs for pods on each node: two of network nics, one of antenna.
const nics = 3

func (w *world) prepare(o nodes.Options) (_ nodes.Options, err error) {
	w.logs = o.Logs
	if w.root, err = checkout.Root(); err != nil {
		return o, err
	}
	programs, err := kube.Binaries("multus")
	if err != nil {
		return o, err
	}
	o.Plugins = []string{filepath.Join(programs, "multus")}
	if err := os.MkdirAll(w.work, 0o755); err != nil {
		return o, err
	}
	o.Around, o.Handlers, o.Proxy = around, w.handlers(), nodes.Fairlead(w.program())
	if err := w.write("token", token+"\n"); err != nil {
		return o, err
	}
	tarred, name, err := nodes.PackImage(w.root, w.work)
	if err != nil {
		return o, err
	}
	w.image, o.Images = name, []string{tarred}
	return o, nil
}

func (w *world) program() string { return filepath.Join(w.root, "bin/fairlead") }

func (w *world) file(name string) string { return filepath.Join(w.work, name) }

func (w *world) write(name, text string) error {
	return os.WriteFile(w.file(name), []byte(text), 0o600)
}

// handlers are the pod networks by RuntimeClass.
func (w *world) handlers() []nodes.Handler {
	all := []nodes.Handler{{Name: "multus", Network: multusNetwork}}
	for name, network := range map[string]string{"macvlan": "science", "nic": "nics"} {
		all = append(all, nodes.Handler{Name: name, Network: fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": %q,
  "plugins": [{"type": "fairlead-cni", "controller": "https://%s:7473", "node": "{{.Name}}", "tokenFile": %q, "caFile": "{{.CA}}"}]
}`, network, vdnAddr, w.file("token"))})
	}
	return all
}

func around(t *lab.Topology) {
	t.Switches = append(t.Switches, lab.SwitchSpec{Name: "science"})
	t.Hosts = append(t.Hosts, lab.HostSpec{Name: "lb", Is: "gateway and balancer", Forward: true}, lab.HostSpec{Name: "client"})
	t.Links = append(t.Links,
		lab.Link{A: lab.At("lb", "eth0", lbAddr+"/24"), B: lab.Port("lan")},
		lab.Link{A: lab.At("lb", "eth2", "172.31.0.1/24", "172.31.1.1/24", "172.31.2.1/24", "172.31.3.1/24").ForXDP(), B: lab.Port("science").ForXDP()},
		lab.Link{A: lab.At("client", "eth0", clientAddr+"/24").Via("192.0.2.1", "default").ForXDP(), B: lab.At("lb", "eth1", "192.0.2.1/24")})
	for _, node := range []string{"n1", "n2"} {
		t.Links = append(t.Links, lab.Link{A: lab.At(node, "eth2").ForXDP(), B: lab.Port("science").ForXDP()})
		for i := range nics {
			t.Links = append(t.Links, lab.Link{A: lab.At(node, fmt.Sprintf("nic%d", i)).ForXDP(), B: lab.Port("science").ForXDP()})
		}
	}
}

// writeState writes information for debugging a failure.
func (w *world) writeState() error {
	all := w.State("pods,services,endpointslices,virtualnetworks,networkattachments", []string{"describe", "pods"})
	for _, n := range w.Nodes {
		said, err := w.links(n)
		all += fmt.Sprintf("# %s: links %q %v\n", n.Name, said, err)
	}
	return os.WriteFile(filepath.Join(w.logs, "state.txt"), []byte(all), 0o644)
}
