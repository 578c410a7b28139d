// Package scale changes the number of load balancers with kubectl scale on a real
// Kubernetes with two nodes (lab/kube/nodes), and measures the delay until a router's
// kernel has exactly these as next hops: Fig. 13 (c) of the paper about ECMP, whose delays
// include Kubernetes.
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/checkout"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/kube/nodes"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Options configures a run.
type Options struct {
	// Binary is the fairlead binary to run.
	Binary string
	// Changes is the number of changes, Every the time between two, Most the maximum
	// number of load balancers, and Seed the seed that selects their numbers.
	Changes int
	Every   time.Duration
	Most    int
	Seed    uint64
	// Progress receives progress messages.
	Progress io.Writer
}

// DefaultOptions returns the options behind the published figures.
func DefaultOptions() Options {
	return Options{Changes: 12, Every: 5 * time.Second, Most: 4, Seed: 1, Progress: io.Discard}
}

// Programs are the programs of Kubernetes that Run needs.
var Programs = append([]string{"kubectl"}, nodes.Programs...)

// Prepared returns the folder with the programs, or what is not installed. Building it
// takes minutes and needs the network.
func Prepared() (folder string, err error) {
	if folder = os.Getenv(kube.BinariesEnv); folder == "" {
		root, err := checkout.Root()
		if err != nil {
			return "", err
		}
		folder = filepath.Join(root, "out/kube/bin")
	}
	for _, name := range Programs {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return "", fmt.Errorf("%w: run first: scripts/deps.sh cluster && scripts/kube.sh %s", err, strings.Join(Programs, " "))
		}
	}
	_, err = exec.LookPath("containerd")
	return folder, err
}

// Names of the rows.
const (
	Up   = "scaled up, until the router's kernel has the load balancers"
	Down = "scaled down, until the router's kernel has only the others"
)

// Run changes the number. It must run in a sandbox with Net.
func Run(ctx context.Context, o Options) (*bench.Report, error) {
	r := bench.New("scale")
	folder, err := Prepared()
	if err == nil {
		err = os.Setenv(kube.BinariesEnv, folder)
	}
	if err != nil {
		return r, err
	}
	w := &world{o: o, work: filepath.Join(sandbox.WorkDir, "scale")}
	if err := w.start(ctx); err != nil {
		return r, errors.Join(err, w.close())
	}
	up, down, err := w.changes(ctx)
	if err = errors.Join(err, w.close()); err != nil {
		return r, err
	}
	if left := sandbox.Leftovers(); len(left) > 0 {
		return r, fmt.Errorf("not cleaned up: %v", left)
	}
	r.Rows = append(r.Rows, bench.Plain(Up, "ms", up...), bench.Plain(Down, "ms", down...))
	r.Note("scale: another number of load balancers, 1 to %d, by kubectl scale every %s, seed %d; two nodes with kubelet and containerd, control plane and router share this machine", o.Most, o.Every, o.Seed)
	return r, nil
}

// world is a cluster with a router on the nodes' segment.
type world struct {
	o       Options
	work    string
	cluster *nodes.Cluster
}

const routerAddr = "172.30.0.2"

var vip = netlink.NewIPNet([]byte{10, 1, 1, 1})

func (w *world) start(ctx context.Context) (err error) {
	if err := os.MkdirAll(w.work, 0o755); err != nil {
		return err
	}
	image, err := nodes.ProgramImage(w.work, imageName, w.o.Binary)
	if err != nil {
		return err
	}
	fmt.Fprintln(w.o.Progress, "scale: starting a cluster of two nodes")
	w.cluster, err = nodes.New(ctx, nodes.Options{Logs: filepath.Join(w.work, "logs"), Images: []string{image}, Around: func(t *lab.Topology) {
		t.Hosts = append(t.Hosts, lab.HostSpec{Name: "router", Is: "upstream router", Forward: true})
		t.Links = append(t.Links, lab.Link{A: lab.At("router", "eth0", routerAddr+"/24"), B: lab.Port("lan")})
	}})
	if err != nil {
		return err
	}
	if err := w.startRouter(); err != nil {
		return err
	}
	file := filepath.Join(w.work, "balancer.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		return err
	}
	if _, err := w.cluster.Kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	_, err = w.reached(ctx, 1, 2*time.Minute)
	return err
}

func (w *world) startRouter() error {
	log, err := os.Create(filepath.Join(w.work, "router.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(w.o.Binary, "router", "--bfd=false", "--router-id", routerAddr, "--listen-range", "172.30.0.0/24", "--socket", filepath.Join(w.work, "router.sock"))
	cmd.Stdout, cmd.Stderr = log, log
	_, err = w.cluster.Host("router").Start(cmd)
	return err
}

// reached waits until the router's kernel has this number of next hops.
func (w *world) reached(ctx context.Context, want int, within time.Duration) (at time.Time, err error) {
	have := 0
	at, ok := cluster.Await(ctx, 5*time.Millisecond, within, func() bool {
		routes, err := w.cluster.Host("router").Netlink().RouteListFiltered(unix.AF_INET, &netlink.Route{Dst: vip}, netlink.RT_FILTER_DST)
		have = 0
		for _, r := range routes {
			have += len(cluster.Hops(r))
		}
		return err == nil && have == want
	})
	if !ok {
		err = errors.Join(ctx.Err(), fmt.Errorf("the router's kernel has %d next hops after %s, want %d\n%s", have, within, want, w.cluster.State("pods", []string{"logs", "--selector", "app=balancer", "--tail=20"})))
	}
	return at, err
}

// changes scales the Deployment, and returns the delays in milliseconds.
func (w *world) changes(ctx context.Context) (up, down []float64, err error) {
	random, running := rand.New(rand.NewPCG(w.o.Seed, 0)), 1
	for i := range w.o.Changes {
		next := time.Now().Add(w.o.Every)
		want := 1 + random.IntN(w.o.Most-1)
		if want >= running {
			want++ // a different number than now
		}
		began := time.Now()
		if _, err := w.cluster.Kubectl(ctx, "scale", "deployment/balancer", fmt.Sprintf("--replicas=%d", want)); err != nil {
			return up, down, err
		}
		at, err := w.reached(ctx, want, time.Minute)
		if err != nil {
			return up, down, err
		}
		took := float64(at.Sub(began).Microseconds()) / 1000
		fmt.Fprintf(w.o.Progress, "scale: change %d of %d, from %d to %d: %.0f ms\n", i+1, w.o.Changes, running, want, took)
		if want > running {
			up = append(up, took)
		} else {
			down = append(down, took)
		}
		running = want
		if err := bench.Pause(ctx, time.Until(next)); err != nil {
			return up, down, err
		}
	}
	return up, down, nil
}

func (w *world) close() error {
	var err error
	if w.cluster != nil {
		err = w.cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(w.work))
}
