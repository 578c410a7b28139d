// Package cluster runs Fairlead in the network of the papers: router, reflector and the
// DSR agent on every node from the start, load balancers and web servers in pods that are
// added and removed. Scenarios and checks belong to its users: lab/demo and the
// end-to-end tests.
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

	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/topology"
)

// StartLimit is how long any component may take to start.
const StartLimit = 20 * time.Second

// Options configure a cluster.
type Options struct {
	// Binary is the fairlead to run, Router is the upstream router: one of Routers.
	Binary, Router string
	// Logs is the folder for the logs of all processes.
	Logs string
	// Paper is the network; pods are created later.
	Paper topology.Options
	// NoBFD leaves BGP sessions to their hold time, which works on any busy machine.
	NoBFD bool
}

// bfd is the flag for everything that has BGP sessions.
func (o Options) bfd() string { return fmt.Sprintf("--bfd=%t", !o.NoBFD) }

// Cluster is the network of the papers with everything that runs in it. Its methods are
// safe for concurrent use.
type Cluster struct {
	Lab *lab.Lab
	// Services are those in the topology, Nodes the machines.
	Services []*topology.Service
	Nodes    []*topology.Node
	// ClientAddrs and ClientAddrs6 are the client's addresses.
	ClientAddrs, ClientAddrs6 []netip.Addr

	opts Options

	mu        sync.Mutex
	binary    string // of processes started from now on
	net       *topology.Net
	processes map[string]*lab.Process // agents and similar, by name
	servers   map[string]*load.Server // by pod
	foreign   func() error            // stops an FRR or BIRD router
}

// New builds the network and starts the permanent components. It needs a sandbox.
func New(ctx context.Context, o Options) (*Cluster, error) {
	plan, err := topology.New(o.Paper)
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

// reflectorAddrs are the addresses of the reflectors.
var reflectorAddrs = map[string]netip.Addr{topology.Reflector: topology.ReflectorAddr, topology.Second: topology.SecondAddr}

// Reflectors are the names of those in the topology.
func (c *Cluster) Reflectors() []string {
	if c.opts.Paper.TwoReflectors {
		return []string{topology.Reflector, topology.Second}
	}
	return []string{topology.Reflector}
}

// reflectors are the addresses of those in the topology, in the format of --peer.
func (c *Cluster) reflectors() string {
	var all []string
	for _, name := range c.Reflectors() {
		all = append(all, reflectorAddrs[name].String())
	}
	return strings.Join(all, ",")
}

// StartReflector starts one of the reflectors. The second one has a separate socket.
func (c *Cluster) StartReflector(name string) error {
	clients := []string{topology.Overlay.String()}
	for _, node := range c.Nodes {
		clients = append(clients, node.Addr.String())
	}
	return c.Start(name, name, "reflector", "--router-id", reflectorAddrs[name].String(), "--cluster-id", topology.ReflectorAddr.String(),
		"--client-range", strings.Join(clients, ","), "--router-range", topology.RouterAddr.String(), "--socket", socket.Default(name), c.opts.bfd())
}

// StartNode starts a node's agent, which is the DSR agent, with additional arguments.
func (c *Cluster) StartNode(node *topology.Node, args ...string) error {
	return c.Start(node.Name, node.Name, Agent(node.Name, Manifests(all), append([]string{"--role", "dsr"}, args...)...)...)
}

// Use makes processes that start from now on run another fairlead.
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
	p, err := c.Lab.Host(host).StartLogged(cmd, c.LogFile(name))
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

// Process returns the running process with that name.
func (c *Cluster) Process(name string) *lab.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[name]
}

// Serve starts the web server of a pod.
func (c *Cluster) Serve(pod topology.Pod) error {
	ln, err := c.Lab.Host(pod.Name).Listen("tcp", fmt.Sprintf(":%d", topology.ServerPort))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[pod.Name] = load.Serve(pod.Name, ln)
	return nil
}

// AddBalancer creates the pod of another load balancer, without starting its agent.
func (c *Cluster) AddBalancer(ctx context.Context, service int) (topology.Pod, error) {
	c.mu.Lock()
	pod, part, err := c.net.AddBalancer(service)
	c.mu.Unlock()
	if err != nil {
		return pod, err
	}
	return pod, c.Lab.Add(ctx, part)
}

// StartBalancer starts a load balancer's agent in its pod, with additional arguments.
func (c *Cluster) StartBalancer(pod topology.Pod, args ...string) error {
	hops := pod.Node.Addr.String()
	if pod.Node.Addr6.IsValid() {
		hops += "," + pod.Node.Addr6.String()
	}
	return c.Start(pod.Name, pod.Name, Agent(pod.Name, Manifests(c.Services[pod.Service].Name),
		append([]string{"--interface", topology.Dev, "--next-hop", hops, "--peer", c.reflectors(), c.opts.bfd()}, args...)...)...)
}

// Route creates a pod, starts a load balancer in it, and waits until the router's kernel
// sends it packets.
func (c *Cluster) Route(ctx context.Context, service int, args ...string) (topology.Pod, error) {
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

// AddServer creates the pod of another backend with its web server; no load balancer
// knows it yet.
func (c *Cluster) AddServer(ctx context.Context, service int) (topology.Pod, error) {
	pod, err := c.AddServerPod(ctx, service)
	if err != nil {
		return pod, err
	}
	return pod, c.Serve(pod)
}

// AddServerPod creates the pod of another backend with nothing in it.
func (c *Cluster) AddServerPod(ctx context.Context, service int) (topology.Pod, error) {
	c.mu.Lock()
	pod, part := c.net.AddServer(service)
	c.mu.Unlock()
	return pod, c.Lab.Add(ctx, part)
}

// Balancers returns the existing load balancer pods of a service.
func (c *Cluster) Balancers(service int) []topology.Pod { return c.pods(true, service) }

// Servers returns the existing backend pods of a service.
func (c *Cluster) Servers(service int) []topology.Pod { return c.pods(false, service) }

// pods returns the load balancers or the backends of a service.
func (c *Cluster) pods(balancers bool, service int) []topology.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if balancers {
		return c.net.Balancers(service)
	}
	return c.net.Servers(service)
}

// Forget removes a pod from the plan; it still exists.
func (c *Cluster) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.Leave(name)
}

// Remember adds a pod to the plan again after Forget.
func (c *Cluster) Remember(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.Stay(name)
}

// RemovePod removes a pod with everything that runs in it.
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
	c.net.Remove(name) // another pod may now get its place
	return nil
}

// Status queries a load balancer's agent.
func (c *Cluster) Status(ctx context.Context, name string) (status.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return status.Fetch(ctx, Socket(name))
}

// EveryBalancer reports whether yes accepts the status of all load balancers of a
// service.
func (c *Cluster) EveryBalancer(ctx context.Context, service int, yes func(status.Status) bool) bool {
	for _, pod := range c.pods(true, service) {
		s, err := c.Status(ctx, pod.Name)
		if err != nil || !yes(s) {
			return false
		}
	}
	return true
}

// FailedProcess returns an error if a process has ended without being stopped.
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

// Close stops every process, the agents gracefully, and removes the network.
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
	return errors.Join(append(errs, RemoveFolders(Manifests("")))...)
}

// RemoveFolders removes those of all agents' pins and sockets, and others.
func RemoveFolders(others ...string) error {
	var errs []error
	for _, dir := range append(others, BPFFS(""), Socket("")) {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// all is the folder with the manifests of all services, for the nodes.
const all = "all"

// Manifests is the folder that a service's load balancers read.
func Manifests(service string) string { return filepath.Join(sandbox.WorkDir, "services", service) }

// Socket is the socket of the agent with that name.
func Socket(name string) string { return filepath.Join(sandbox.WorkDir, "sockets", name) }

// Agent returns the arguments of an agent with a name, which reads a folder of manifests.
func Agent(name, manifests string, args ...string) []string {
	return append([]string{"agent", "--node", name, "--manifest-dir", manifests, "--bpffs", BPFFS(name), "--socket", Socket(name)}, args...)
}

// BPFFS is the folder for pins of the agent with that name.
func BPFFS(name string) string { return filepath.Join("/sys/fs/bpf", "cluster", name) }

// Write atomically writes a file of manifests for a service's own load balancers and for
// the nodes.
func (c *Cluster) Write(service int, file, text string) error {
	for _, folder := range []string{c.Services[service].Name, all} {
		if err := ReplaceFile(filepath.Join(Manifests(folder), file), text); err != nil {
			return err
		}
	}
	return nil
}

// Rename renames a file of manifests, in a service's own folder and in the nodes'.
func (c *Cluster) Rename(service int, from, to string) error {
	for _, folder := range []string{c.Services[service].Name, all} {
		if err := os.Rename(filepath.Join(Manifests(folder), from), filepath.Join(Manifests(folder), to)); err != nil {
			return err
		}
	}
	return nil
}

// ReplaceFile atomically replaces the content of a file.
func ReplaceFile(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(file), ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// LogFile is a process's log file.
func (c *Cluster) LogFile(name string) string { return filepath.Join(c.opts.Logs, name+".log") }

// LastLines returns the end of a log, for errors.
func LastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// NextHops are the next hops that the router should have for a service: the nodes of its
// load balancers.
func (c *Cluster) NextHops(service int) []string {
	var hops []string
	for _, pod := range c.pods(true, service) {
		hops = append(hops, pod.Node.Addr.String())
	}
	slices.Sort(hops)
	return hops
}
