// Install sees Fairlead installed in a cluster of two real nodes without
// kube-proxy as its users do it, by the plain manifests or the Helm chart, from
// the image that make image makes: a Deployment gets an address that a client
// beyond an ECMP router reaches, a node is drained, and when all is deleted
// nothing is left on the nodes. Its exit code is 0 where all of that is so.
//
//	go run ./lab/kube/install -by chart
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/kube/nodes"
	"github.com/fairlead/fairlead/lab/sandbox"
)

func main() {
	by := flag.String("by", "manifests", "`what` is installed: manifests or chart (with bin/tools/helm)")
	logs := flag.String("logs", "out/install", "the `folder` for logs")
	limit := flag.Duration("limit", 15*time.Minute, "how long all may take")
	flag.Parse()
	if ways[*by].install == nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "install: -by manifests or -by chart, and nothing else is asked for")
		os.Exit(2)
	}
	if err := run(*by, *logs, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

// world is a cluster with a network around it, and what is installed there.
type world struct {
	*nodes.Cluster
	root  string // of the checkout
	work  string
	by    string
	image string // its name and tag
	logs  string
	began time.Time
}

func run(by, logs string, limit time.Duration) (err error) {
	if err := prepare(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w := &world{by: by, work: filepath.Join(sandbox.WorkDir, "install")}
	if w.root, err = checkout.Root(); err != nil {
		return err
	}
	if w.logs, err = filepath.Abs(logs); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(w.logs), os.MkdirAll(w.work, 0o755)); err != nil {
		return err
	}
	tarred := filepath.Join(w.work, "fairlead.tar")
	if w.image, err = packLayout(filepath.Join(w.root, "out/image"), tarred); err != nil {
		return fmt.Errorf("the image: %w: make image makes it", err)
	}
	w.began = time.Now()
	w.Cluster, err = nodes.New(ctx, nodes.Options{Logs: w.logs, Images: []string{tarred}, Around: around})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.say("two nodes are ready, without any service proxy")
	if err := w.story(ctx); err != nil {
		return errors.Join(err, w.tellState())
	}
	return nil
}

// prepare sees that all programs are there while there still is a network, and
// enters the sandbox.
func prepare() error {
	if os.Getenv(kube.BinariesEnv) == "" {
		folder, err := kube.Binaries(slices.Concat(nodes.Programs, []string{"kubectl"})...)
		if err != nil {
			return err
		}
		if err := os.Setenv(kube.BinariesEnv, folder); err != nil {
			return err
		}
	}
	return sandbox.Enter(sandbox.Options{Name: "install", Net: true})
}

// The network around the cluster: a client beyond a router at the nodes' segment.
const (
	routerAddr = "172.30.0.2"
	clientAddr = "192.0.2.10"
	clientNet  = "192.0.2.0/24"
)

func around(t *lab.Topology) {
	for i, l := range t.Links {
		if len(l.A.Addrs) > 0 {
			t.Links[i].A = l.A.Via(routerAddr, clientNet) // of a host; B is the switch
		}
	}
	t.Hosts = append(t.Hosts, lab.HostSpec{Name: "router", Is: "upstream router", Forward: true}, lab.HostSpec{Name: "client"})
	t.Links = append(t.Links,
		lab.Link{A: lab.At("router", "eth0", routerAddr+"/24"), B: lab.Port("lan")},
		lab.Link{A: lab.At("client", "eth0", clientAddr+"/24").Via("192.0.2.1", "default"), B: lab.At("router", "eth1", "192.0.2.1/24")})
}

// say tells what has come about, and when.
func (w *world) say(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}
