// Install installs Fairlead in a cluster of two real nodes without kube-proxy as users
// do, with the plain manifests or the Helm chart, from the image that make image builds.
// It checks that a Deployment gets an address that a client behind an ECMP router
// reaches, drains a node, and checks that after all is deleted nothing is left on the
// nodes. Its exit code is 0 if all of that succeeds.
//
//	go run ./lab/kube/install -by chart
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube/nodes"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func main() {
	by := flag.String("by", "manifests", "`what` is installed: manifests or chart (with bin/tools/helm)")
	logs := flag.String("logs", "out/install", "the `folder` for logs")
	limit := flag.Duration("limit", 15*time.Minute, "how long all may take")
	flag.Parse()
	var wrong error
	if ways[*by].install == nil || flag.NArg() > 0 {
		wrong = errors.New("-by manifests or -by chart, and no arguments")
	}
	w := &world{by: *by, work: filepath.Join(sandbox.WorkDir, "install")}
	nodes.Job{
		Name: "install", Programs: []string{"kubectl"}, Logs: *logs, Limit: *limit,
		Prepare: w.prepare,
		Do: func(ctx context.Context, c *nodes.Cluster) error {
			w.Cluster = c
			w.Say("two nodes are ready, without any service proxy")
			if err := w.story(ctx); err != nil {
				return errors.Join(err, w.writeState())
			}
			return nil
		},
	}.Main(wrong)
}

// world is a cluster with a network around it, and what is installed there.
type world struct {
	*nodes.Cluster
	root  string // of the checkout
	work  string
	by    string
	image string // its name and tag
	logs  string
}

// prepare packs the image, which the nodes have from the start.
func (w *world) prepare(o nodes.Options) (_ nodes.Options, err error) {
	w.logs = o.Logs
	if w.root, err = checkout.Root(); err != nil {
		return o, err
	}
	if err := os.MkdirAll(w.work, 0o755); err != nil {
		return o, err
	}
	tarred, name, err := nodes.PackImage(w.root, w.work)
	if err != nil {
		return o, err
	}
	w.image = name
	o.Images, o.Around, o.Path = []string{tarred}, around, []string{filepath.Join(w.root, "bin")}
	return o, nil
}

// The network around the cluster: a client behind a router on the nodes' segment.
const (
	routerAddr = "172.30.0.2"
	clientAddr = "192.0.2.10"
	clientNet  = "192.0.2.0/24"
)

func around(t *lab.Topology) {
	for i, l := range t.Links {
		if len(l.A.Addrs) > 0 {
			t.Links[i].A = l.A.Via(routerAddr, clientNet) // end A is on a host; B is the switch
		}
	}
	t.Hosts = append(t.Hosts, lab.HostSpec{Name: "router", Is: "upstream router", Forward: true}, lab.HostSpec{Name: "client"})
	t.Links = append(t.Links,
		// The dedicated load balancer of a Service speaks BGP from its pod.
		lab.Link{A: lab.At("router", "eth0", routerAddr+"/24").Via("172.30.0.11", "10.244.1.0/24").Via("172.30.0.12", "10.244.2.0/24"), B: lab.Port("lan")},
		lab.Link{A: lab.At("client", "eth0", clientAddr+"/24").Via("192.0.2.1", "default"), B: lab.At("router", "eth1", "192.0.2.1/24")})
}
