package ecmp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cluster"
)

// Goals of the case services, in milliseconds.
const (
	servicesGoal = 2000
	oneAddedGoal = 500
)

// services measures one load balancer with many Services from a folder of manifests: from
// its start, and from an edit of one manifest, until the router's kernel has the right
// routes. A route is advertised only once its frontend is programmed.
func services(ctx context.Context, o Options, r *bench.Report) (err error) {
	balancer := lab.HostSpec{Name: "balancer"}
	base, err := newNetwork(ctx, o, lab.Topology{
		Hosts: []lab.HostSpec{balancer},
		Links: []lab.Link{{A: lab.At(balancer.Name, "eth0", balancerAddr(0).String()+"/16"), B: lab.Port(segment)}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.close()) }()
	n := &servicesNetwork{network: base, manifests: filepath.Join(base.dir, "services")}
	if err := n.bringUp(); err != nil {
		return err
	}
	var t serviceTimes
	for i := range o.Rounds {
		o.logf("services: round %d of %d", i+1, o.Rounds)
		if err := t.round(ctx, n); err != nil {
			return fmt.Errorf("%w: %s", err, cluster.LastLines(filepath.Join(n.dir, "balancer.log")))
		}
	}
	size := fmt.Sprintf("%d Services without health checks", o.Prefixes)
	row := func(what string, figures []float64) bench.Row {
		return bench.Plain("services: "+what+", "+size, "ms", figures...)
	}
	r.Rows = append(r.Rows,
		row("agent starts with nothing programmed", t.start).AtMost(servicesGoal),
		row("agent starts, its processor time", t.startCPU),
		row("agent starts again with all programmed", t.again).AtMost(servicesGoal),
		row("one manifest removed", t.remove),
		row("one manifest added", t.add).AtMost(oneAddedGoal),
		row("agent drains and ends", t.end),
	)
	r.Note("services: two endpoints each; each time is from the start or the edit until the router's kernel has exactly the right routes; reflector, router and agent share this machine; a removed manifest counts after a second, in case it is being replaced")
	return nil
}

// serviceTimes contains the measurements, in milliseconds.
type serviceTimes struct{ start, startCPU, again, remove, add, end []float64 }

// round starts and ends with no agent, nothing programmed and no route.
func (t *serviceTimes) round(ctx context.Context, n *servicesNetwork) error {
	agent, took, err := n.startAgent(ctx)
	if err != nil {
		return err
	}
	t.start, t.startCPU = append(t.start, ms(took)), append(t.startCPU, processorTime(agent.PID()))
	for i := range changesARound {
		if err := n.edit(ctx, i, &t.remove, &t.add); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := agent.Signal(unix.SIGTERM); err != nil {
		return err
	}
	if took, err = n.until(ctx, began, n.o.Prefixes, 0); err != nil {
		return err
	}
	t.end = append(t.end, ms(took))
	<-agent.Done()
	if agent, took, err = n.startAgent(ctx); err != nil {
		return err
	}
	t.again = append(t.again, ms(took))
	if err := agent.Kill(); err != nil {
		return err
	}
	<-agent.Done()
	return n.reset(ctx)
}

// servicesNetwork is a network with one load balancer and a folder of manifests.
type servicesNetwork struct {
	*network
	manifests string
}

// bringUp writes the manifests, and starts reflector and router.
func (n *servicesNetwork) bringUp() error {
	for i := range n.o.Prefixes {
		if err := n.write(i); err != nil {
			return err
		}
	}
	if _, err := n.startReflector(); err != nil {
		return err
	}
	_, err := n.startRouter()
	return err
}

func (n *servicesNetwork) file(i int) string {
	return filepath.Join(n.manifests, fmt.Sprintf("service-%d.yaml", i))
}

const serviceManifest = `apiVersion: v1
kind: Service
metadata:
  name: service-NUMBER
  annotations: {fairlead.io/health-check: none, fairlead.io/advertise-prefixes: PREFIX}
spec: {type: LoadBalancer, loadBalancerIP: VIP, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: service-NUMBER-1, labels: {kubernetes.io/service-name: service-NUMBER}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.121]}, {addresses: [10.0.0.122]}]
`

// write writes the manifest of a Service.
func (n *servicesNetwork) write(i int) error {
	to := servicePrefix(i)
	text := strings.NewReplacer("NUMBER", fmt.Sprint(i), "PREFIX", to.String(), "VIP", to.Addr().Next().String()).Replace(serviceManifest)
	return cluster.ReplaceFile(n.file(i), text)
}

// startAgent starts the load balancer and waits until the router has all its routes.
func (n *servicesNetwork) startAgent(ctx context.Context) (*lab.Process, time.Duration, error) {
	began := time.Now()
	agent, err := n.start("balancer", "agent", "--node", "balancer", "--manifest-dir", n.manifests, "--interface", "eth0",
		"--peer", reflectorAddr.String(), "--next-hop", balancerAddr(0).String(), "--bpffs", n.bpffs(),
		"--state-dir", filepath.Join(n.dir, "state"), "--socket", filepath.Join(n.dir, "agent.sock"))
	if err != nil {
		return nil, 0, err
	}
	took, err := n.until(ctx, began, n.o.Prefixes, 1)
	return agent, took, err
}

// edit removes the manifest of one Service and adds it again, and measures both.
func (n *servicesNetwork) edit(ctx context.Context, i int, remove, add *[]float64) error {
	one := i * (n.o.Prefixes - 1) / changesARound
	began := time.Now()
	if err := os.Remove(n.file(one)); err != nil {
		return err
	}
	took, err := n.untilOne(ctx, began, one, 0)
	if err != nil {
		return err
	}
	*remove = append(*remove, ms(took))
	began = time.Now()
	if err := n.write(one); err != nil {
		return err
	}
	took, err = n.untilOne(ctx, began, one, 1)
	*add = append(*add, ms(took))
	return err
}

func (n *servicesNetwork) bpffs() string { return filepath.Join("/sys/fs/bpf", "services") }

// reset removes what a killed agent has programmed, and waits until its routes are gone.
func (n *servicesNetwork) reset(ctx context.Context) error {
	p, err := n.start("balancer", "cleanup", "--bpffs", n.bpffs())
	if err != nil {
		return err
	}
	<-p.Done()
	if err := errors.Join(os.Remove(n.bpffs()), os.RemoveAll(filepath.Join(n.dir, "state"))); err != nil {
		return err
	}
	_, err = n.until(ctx, time.Now(), n.o.Prefixes, 0)
	return err
}
