package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/status"
)

// cluster is the network of the papers with everything that runs in it.
type cluster struct {
	opts Options
	net  *paper.Net
	lab  *lab.Lab

	mu        sync.Mutex              // also of net
	processes map[string]*lab.Process // by host, agents and the like
	servers   map[string]*load.Server // by pod
	draining  map[string]bool         // servers
	foreign   func() error            // stops a foreign router
}

// newCluster builds the network, with no balancer in it yet, and starts what
// is always there: router, reflector, servers, the server half on each node.
func newCluster(ctx context.Context, o Options) (*cluster, error) {
	plan, err := paper.New(paper.Options{
		Services: []paper.ServiceOptions{{Servers: o.Servers}, {Servers: secondServers}},
		Nodes:    max(4, o.Balancers+2),
	})
	if err != nil {
		return nil, err
	}
	c := &cluster{
		opts: o, net: plan, processes: map[string]*lab.Process{}, servers: map[string]*load.Server{}, draining: map[string]bool{},
	}
	if c.lab, err = lab.Build(ctx, plan.Topology()); err != nil {
		return nil, err
	}
	if err := c.startAlways(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) startAlways() error {
	for i := range c.net.Services {
		for _, pod := range c.pods(false, i) {
			if err := c.serve(pod); err != nil {
				return err
			}
		}
		if err := c.writeManifests(i); err != nil {
			return err
		}
	}
	err := c.start(paper.Reflector, paper.Reflector, "reflector", "--router-id", paper.ReflectorAddr.String(),
		"--clients", paper.Overlay.String(), "--router", paper.RouterAddr.String())
	if err != nil {
		return err
	}
	if err := c.startRouter(); err != nil {
		return err
	}
	for _, node := range c.net.Nodes {
		err := c.start(node.Name, node.Name, "agent", "--role", "server", "--node", node.Name,
			"--services", manifests("all"), "--bpffs", bpffs(node.Name), "--socket", socket(node.Name))
		if err != nil {
			return err
		}
	}
	return nil
}

// start runs fairlead with args in a host, under a name.
func (c *cluster) start(host, name string, args ...string) error {
	log, err := os.OpenFile(c.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.opts.Binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := c.lab.Host(host).Start(cmd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[name] = p
	return nil
}

// process gives the running process of that name.
func (c *cluster) process(name string) *lab.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[name]
}

// serve starts the web server of a pod.
func (c *cluster) serve(pod paper.Pod) error {
	ln, err := c.lab.Host(pod.Name).Listen("tcp", fmt.Sprintf(":%d", paper.ServerPort))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[pod.Name] = load.Serve(pod.Name, ln)
	return nil
}

// addBalancer makes the pod of one more balancer; its agent is still to start.
func (c *cluster) addBalancer(ctx context.Context, service int) (paper.Pod, error) {
	c.mu.Lock()
	pod, part, err := c.net.AddBalancer(service)
	c.mu.Unlock()
	if err != nil {
		return pod, err
	}
	return pod, c.lab.Add(ctx, part)
}

// startBalancer starts a balancer's agent in its pod.
func (c *cluster) startBalancer(pod paper.Pod) error {
	return c.start(pod.Name, pod.Name, "agent", "--node", pod.Name, "--services", manifests(c.net.Services[pod.Service].Name),
		"--interface", paper.Dev, "--next-hop", pod.Node.Addr.String(), "--peer", paper.ReflectorAddr.String(),
		"--bpffs", bpffs(pod.Name), "--socket", socket(pod.Name))
}

// pods gives the balancers or the servers of a service.
func (c *cluster) pods(balancers bool, service int) []paper.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if balancers {
		return c.net.Balancers(service)
	}
	return c.net.Servers(service)
}

// forget plans without a pod from now on; it is still there.
func (c *cluster) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.Remove(name)
}

// removePod takes a pod away with all that runs in it.
func (c *cluster) removePod(name string) error {
	c.forget(name)
	c.mu.Lock()
	server := c.servers[name]
	delete(c.servers, name)
	delete(c.processes, name)
	c.mu.Unlock()
	if server != nil {
		if err := server.Kill(); err != nil {
			return err
		}
	}
	return c.lab.Remove(name)
}

// balancers names the balancers of a service.
func (c *cluster) balancers(service int) []string {
	var names []string
	for _, pod := range c.pods(true, service) {
		names = append(names, pod.Name)
	}
	return names
}

// status asks a balancer's agent.
func (c *cluster) status(ctx context.Context, name string) (status.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return status.Fetch(ctx, socket(name))
}

// everyBalancer says whether the agents of all balancers of a service say yes.
func (c *cluster) everyBalancer(ctx context.Context, service int, yes func(status.Status) bool) bool {
	for _, pod := range c.pods(true, service) {
		s, err := c.status(ctx, pod.Name)
		if err != nil || !yes(s) {
			return false
		}
	}
	return true
}

// failedProcess says which process ended though nobody told it to.
func (c *cluster) failedProcess() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.processes {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended by itself (%v): %s", name, p.Wait(), lastLines(c.logFile(name)))
		default:
		}
	}
	return nil
}

// close ends every process, the agents gently, and takes the network away.
func (c *cluster) close() error {
	c.mu.Lock()
	var stopping sync.WaitGroup
	for _, p := range c.processes {
		stopping.Go(func() { p.Stop(5 * time.Second) }) //nolint:errcheck // how it ended does not matter any more
	}
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.Kill())
	}
	c.mu.Unlock()
	stopping.Wait()
	if c.foreign != nil {
		errs = append(errs, c.foreign())
	}
	errs = append(errs, c.lab.Close())
	for _, dir := range []string{bpffs(""), manifests(""), filepath.Join(sandbox.WorkDir, "sockets")} {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// Places in the sandbox.
func manifests(service string) string { return filepath.Join(sandbox.WorkDir, "services", service) }
func bpffs(name string) string        { return filepath.Join("/sys/fs/bpf", "demo", name) }
func socket(name string) string       { return filepath.Join(sandbox.WorkDir, "sockets", name) }

// logFile is where a process's log goes.
func (c *cluster) logFile(name string) string { return filepath.Join(c.opts.Logs, name+".log") }

// lastLines gives the end of a log, for errors.
func lastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// kernel gives the kernel's release.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// nextHops are those that the router ought to have for a service: the nodes of
// its balancers.
func (c *cluster) nextHops(service int) []string {
	var hops []string
	for _, pod := range c.pods(true, service) {
		hops = append(hops, pod.Node.Addr.String())
	}
	slices.Sort(hops)
	return hops
}
