// Package cluster runs Fairlead in the network of the papers: router, reflector
// and the DSR agent on every node from the start, balancers and web servers
// in pods that come and go. What happens to them, and what comes of it, is the
// business of those who use it: lab/demo and the end-to-end tests.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// StartLimit is how long anything may take to come up.
const StartLimit = 20 * time.Second

// Options say what is run.
type Options struct {
	// Binary is the fairlead to run, Router what is upstream: one of Routers.
	Binary, Router string
	// Logs is the folder for the logs of all processes.
	Logs string
	// Paper is the network; pods are made later.
	Paper paper.Options
	// NoBFD leaves BGP sessions to their hold time, which no machine is too busy for.
	NoBFD bool
}

// bfd is for whatever has BGP sessions.
func (o Options) bfd() string { return fmt.Sprintf("--bfd=%t", !o.NoBFD) }

// Cluster is the network of the papers with everything that runs in it. Its
// methods may be called from any goroutine.
type Cluster struct {
	Lab *lab.Lab
	// Services are those that were drawn, Nodes the machines.
	Services []*paper.Service
	Nodes    []*paper.Node
	// ClientAddrs and ClientAddrs6 are the client's.
	ClientAddrs, ClientAddrs6 []netip.Addr

	opts Options

	mu        sync.Mutex
	binary    string // of processes to come
	net       *paper.Net
	processes map[string]*lab.Process // by name, agents and the like
	servers   map[string]*load.Server // by pod
	foreign   func() error            // stops a foreign router
}

// New builds the network and starts what is always there. It needs a sandbox.
func New(ctx context.Context, o Options) (*Cluster, error) {
	plan, err := paper.New(o.Paper)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Services: plan.Services, Nodes: plan.Nodes, ClientAddrs: plan.ClientAddrs, ClientAddrs6: plan.ClientAddrs6,
		opts: o, binary: o.Binary, net: plan, processes: map[string]*lab.Process{}, servers: map[string]*load.Server{},
	}
	if c.Lab, err = lab.Build(ctx, plan.Topology()); err != nil {
		return nil, err
	}
	if err := c.startAlways(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) startAlways() error {
	if err := os.MkdirAll(Manifests(all), 0o755); err != nil {
		return err
	}
	for _, name := range c.Reflectors() {
		if err := c.StartReflector(name); err != nil {
			return err
		}
	}
	if err := c.StartRouter(); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := c.StartNode(node); err != nil {
			return err
		}
	}
	return nil
}

// reflectorAddrs are where the reflectors are.
var reflectorAddrs = map[string]netip.Addr{paper.Reflector: paper.ReflectorAddr, paper.Second: paper.SecondAddr}

// Reflectors names those that are drawn.
func (c *Cluster) Reflectors() []string {
	if c.opts.Paper.TwoReflectors {
		return []string{paper.Reflector, paper.Second}
	}
	return []string{paper.Reflector}
}

// reflectors are the addresses of those that are drawn, as --peer takes them.
func (c *Cluster) reflectors() string {
	var all []string
	for _, name := range c.Reflectors() {
		all = append(all, reflectorAddrs[name].String())
	}
	return strings.Join(all, ",")
}

// StartReflector starts one of the reflectors. The second has a socket of its own.
func (c *Cluster) StartReflector(name string) error {
	clients := []string{paper.Overlay.String()}
	for _, node := range c.Nodes {
		clients = append(clients, node.Addr.String())
	}
	return c.Start(name, name, "reflector", "--router-id", reflectorAddrs[name].String(), "--cluster-id", paper.ReflectorAddr.String(),
		"--client-range", strings.Join(clients, ","), "--router-range", paper.RouterAddr.String(), "--socket", status.Socket(name), c.opts.bfd())
}

// StartNode starts a node's agent, which is the DSR agent, with further
// arguments.
func (c *Cluster) StartNode(node *paper.Node, args ...string) error {
	return c.Start(node.Name, node.Name, append([]string{"agent", "--role", "dsr", "--node", node.Name,
		"--manifest-dir", Manifests(all), "--bpffs", BPFFS(node.Name), "--socket", Socket(node.Name)}, args...)...)
}

// Use has processes that start from now on run another fairlead.
func (c *Cluster) Use(binary string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.binary = binary
}

// Start runs fairlead with args in a host, under a name.
func (c *Cluster) Start(host, name string, args ...string) error {
	c.mu.Lock()
	cmd := exec.Command(c.binary, args...)
	c.mu.Unlock()
	return c.Run(host, name, cmd)
}

// Run starts any program in a host, under a name, with its output in LogFile(name).
func (c *Cluster) Run(host, name string, cmd *exec.Cmd) error {
	log, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := c.Lab.Host(host).Start(cmd)
	if err != nil {
		return err
	}
	if err := p.GoFirst(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[name] = p
	return nil
}

// Process gives the running process of that name.
func (c *Cluster) Process(name string) *lab.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[name]
}

// Serve starts the web server of a pod.
func (c *Cluster) Serve(pod paper.Pod) error {
	ln, err := c.Lab.Host(pod.Name).Listen("tcp", fmt.Sprintf(":%d", paper.ServerPort))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[pod.Name] = load.Serve(pod.Name, ln)
	return nil
}

// AddBalancer makes the pod of one more balancer; its agent is still to start.
func (c *Cluster) AddBalancer(ctx context.Context, service int) (paper.Pod, error) {
	c.mu.Lock()
	pod, part, err := c.net.AddBalancer(service)
	c.mu.Unlock()
	if err != nil {
		return pod, err
	}
	return pod, c.Lab.Add(ctx, part)
}

// StartBalancer starts a balancer's agent in its pod, with further arguments.
func (c *Cluster) StartBalancer(pod paper.Pod, args ...string) error {
	hops := pod.Node.Addr.String()
	if pod.Node.Addr6.IsValid() {
		hops += "," + pod.Node.Addr6.String()
	}
	return c.Start(pod.Name, pod.Name, append([]string{"agent", "--node", pod.Name,
		"--manifest-dir", Manifests(c.Services[pod.Service].Name), "--interface", paper.Dev, "--next-hop", hops,
		"--peer", c.reflectors(), "--bpffs", BPFFS(pod.Name), "--socket", Socket(pod.Name), c.opts.bfd()}, args...)...)
}

// Route makes a pod, starts a balancer in it, and waits until the router's
// kernel sends it packets.
func (c *Cluster) Route(ctx context.Context, service int, args ...string) (paper.Pod, error) {
	pod, err := c.AddBalancer(ctx, service)
	if err != nil {
		return pod, err
	}
	if err := c.StartBalancer(pod, args...); err != nil {
		return pod, err
	}
	_, ok := Await(ctx, time.Millisecond, StartLimit, func() bool { return c.RouterHas(service, c.NextHops(service)) })
	if ctx.Err() != nil {
		return pod, ctx.Err()
	}
	if !ok {
		return pod, fmt.Errorf("the router never learnt of balancer %s: %s", pod.Name, LastLines(c.LogFile(pod.Name)))
	}
	return pod, nil
}

// AddServer makes the pod of one more server with its web server; no balancer
// knows of it yet.
func (c *Cluster) AddServer(ctx context.Context, service int) (paper.Pod, error) {
	pod, err := c.AddServerPod(ctx, service)
	if err != nil {
		return pod, err
	}
	return pod, c.Serve(pod)
}

// AddServerPod makes the pod of one more server with nothing in it.
func (c *Cluster) AddServerPod(ctx context.Context, service int) (paper.Pod, error) {
	c.mu.Lock()
	pod, part := c.net.AddServer(service)
	c.mu.Unlock()
	return pod, c.Lab.Add(ctx, part)
}

// Balancers and Servers give the pods of a service that are there.
func (c *Cluster) Balancers(service int) []paper.Pod { return c.pods(true, service) }

// Servers gives the servers of a service.
func (c *Cluster) Servers(service int) []paper.Pod { return c.pods(false, service) }

// pods gives the balancers or the servers of a service.
func (c *Cluster) pods(balancers bool, service int) []paper.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if balancers {
		return c.net.Balancers(service)
	}
	return c.net.Servers(service)
}

// Forget plans without a pod from now on; it is still there.
func (c *Cluster) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.Leave(name)
}

// Remember plans with a pod again that Forget was told of.
func (c *Cluster) Remember(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.Stay(name)
}

// RemovePod takes a pod away with all that runs in it.
func (c *Cluster) RemovePod(name string) error {
	c.Forget(name)
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
	if err := errors.Join(c.Lab.Remove(name), os.RemoveAll(BPFFS(name))); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.Remove(name) // another pod may have its place from now on
	return nil
}

// Status asks a balancer's agent.
func (c *Cluster) Status(ctx context.Context, name string) (status.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return status.Fetch(ctx, Socket(name))
}

// EveryBalancer says whether the agents of all balancers of a service say yes.
func (c *Cluster) EveryBalancer(ctx context.Context, service int, yes func(status.Status) bool) bool {
	for _, pod := range c.pods(true, service) {
		s, err := c.Status(ctx, pod.Name)
		if err != nil || !yes(s) {
			return false
		}
	}
	return true
}

// FailedProcess says which process ended though nobody told it to.
func (c *Cluster) FailedProcess() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.processes {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended by itself (%v): %s", name, p.Wait(), LastLines(c.LogFile(name)))
		default:
		}
	}
	return nil
}

// Close ends every process, the agents gently, and takes the network away.
func (c *Cluster) Close() error {
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
	errs = append(errs, c.Lab.Close())
	for _, dir := range []string{BPFFS(""), Manifests(""), filepath.Join(sandbox.WorkDir, "sockets")} {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// all is the folder with the manifests of all services, for the nodes.
const all = "all"

// Manifests is the folder that a service's balancers read.
func Manifests(service string) string { return filepath.Join(sandbox.WorkDir, "services", service) }

// Socket is where the agent of that name answers.
func Socket(name string) string { return filepath.Join(sandbox.WorkDir, "sockets", name) }

// BPFFS is where the agent of that name pins.
func BPFFS(name string) string { return filepath.Join("/sys/fs/bpf", "cluster", name) }

// Write gives a file of manifests, in one step, to a service's own balancers
// and to the nodes.
func (c *Cluster) Write(service int, file, text string) error {
	for _, folder := range []string{c.Services[service].Name, all} {
		if err := replaceFile(filepath.Join(Manifests(folder), file), text); err != nil {
			return err
		}
	}
	return nil
}

// Rename gives a file of manifests another name, in a service's own folder
// and in the nodes'.
func (c *Cluster) Rename(service int, from, to string) error {
	for _, folder := range []string{c.Services[service].Name, all} {
		if err := os.Rename(filepath.Join(Manifests(folder), from), filepath.Join(Manifests(folder), to)); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile gives a file a new content in one step.
func replaceFile(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(file), ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// LogFile is where a process's log goes.
func (c *Cluster) LogFile(name string) string { return filepath.Join(c.opts.Logs, name+".log") }

// LastLines gives the end of a log, for errors.
func LastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// NextHops are those that the router ought to have for a service: the nodes of
// its balancers.
func (c *Cluster) NextHops(service int) []string {
	var hops []string
	for _, pod := range c.pods(true, service) {
		hops = append(hops, pod.Node.Addr.String())
	}
	slices.Sort(hops)
	return hops
}
