package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	dpproxy "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// The addresses of the network in which the additional hop is measured:
//
//	node 10.0.0.1 ───────┐
//	balancer 10.0.0.2 ───┤ switch
//	server 10.0.0.3 ─────┘
var (
	balancerAddr = netip.MustParseAddr("10.0.0.2")
	serverAddr   = netip.MustParseAddr("10.0.0.3")
	vip          = netip.MustParseAddr("10.1.0.1")
)

// pins is the folder on the BPF file system.
const pins = "/sys/fs/bpf/fairlead-central"

// manifest is the Service of the central load balancer.
const manifest = `apiVersion: v1
kind: Service
metadata:
  name: echo
  namespace: bench
  annotations: {fairlead.io/forwarding-mode: fullnat, fairlead.io/health-check: none}
spec:
  type: LoadBalancer
  loadBalancerIP: %s
  ports: [{name: echo, port: %d, targetPort: %d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: echo-1
  namespace: bench
  labels: {kubernetes.io/service-name: echo}
addressType: IPv4
ports: [{name: echo, port: %[3]d}]
endpoints: [{addresses: [%[4]s], conditions: {ready: true}}]
`

// hop measures requests through the node's own proxy and through a central load balancer,
// in alternation.
func (e *experiment) hop(ctx context.Context) (err error) {
	e.logf("requests with and without the additional hop")
	remove, err := local()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(), os.RemoveAll(pins)) }() // after the balancer, which is in the cgroup, too
	l, err := lab.Build(ctx, lab.Topology{
		Hosts: []lab.HostSpec{{Name: "node"}, {Name: "balancer", Forward: true}, {Name: "server"}}, Switches: []lab.SwitchSpec{{Name: "nodes"}},
		Links: []lab.Link{
			{A: lab.At("node", "eth0", testbed.Node.String()+"/24"), B: lab.Port("nodes")},
			{A: lab.At("balancer", "eth0", balancerAddr.String()+"/24"), B: lab.Port("nodes")},
			{A: lab.At("server", "eth0", serverAddr.String()+"/24"), B: lab.Port("nodes")},
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, host := range []string{"node", "server"} { // a packet that a program redirects must have its checksum
		if err := l.Host(host).Offload("eth0", false); err != nil {
			return err
		}
	}
	sink, err := l.Host("server").Listen("tcp4", fmt.Sprintf(":%d", testbed.Port))
	if err != nil {
		return err
	}
	defer sink.Close()
	go netns.ServeTCP(sink, func(c net.Conn) { _, _ = io.Copy(c, c) })
	log, err := e.balance(l)
	if err != nil {
		return err
	}
	return e.requests(ctx, l.Host("node"), log)
}

// local programs a Service into this machine's sockets, as the node's service proxy does.
func local() (remove func() error, err error) {
	g, err := testbed.New()
	if err != nil {
		return nil, err
	}
	d, err := dpproxy.Open(dpproxy.Config{PinDir: filepath.Join(pins, "proxy"), Cgroup: g.Cgroup})
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	f := proxy.Frontend{Key: proxy.Key{Addr: kube.ServiceAddr(0), Port: testbed.ServicePort, Protocol: service.TCP}}
	f.Inside.Targets = []proxy.Target{{Addr: netip.AddrPortFrom(serverAddr, testbed.Port)}}
	f.Outside = f.Inside
	remove = func() error { return errors.Join(d.Detach(), g.Close()) }
	if err := d.Apply([]proxy.Frontend{f}, nil); err != nil {
		return nil, errors.Join(err, remove())
	}
	return remove, nil
}

// balance starts the central load balancer, which ends with the network, and returns the
// path of its log.
func (e *experiment) balance(l *lab.Lab) (log string, err error) {
	err = l.Host("node").Netlink().RouteAdd(&netlink.Route{Dst: lab.IPNet(netip.PrefixFrom(vip, 32)), Gw: balancerAddr.AsSlice()})
	if err != nil {
		return "", err
	}
	folder := filepath.Join(sandbox.WorkDir, "central")
	if err := os.MkdirAll(filepath.Join(folder, "manifests"), 0o755); err != nil {
		return "", err
	}
	text := fmt.Appendf(nil, manifest, vip, testbed.ServicePort, testbed.Port, serverAddr)
	if err := os.WriteFile(filepath.Join(folder, "manifests", "echo.yaml"), text, 0o644); err != nil {
		return "", err
	}
	log = filepath.Join(folder, "log")
	cmd := exec.Command(e.Binary, "agent", "--node", "balancer", "--manifest-dir", filepath.Join(folder, "manifests"), "--interface", "eth0",
		"--bpffs", filepath.Join(pins, "balancer"), "--socket", filepath.Join(folder, "socket"), "--health-address", "")
	_, err = l.Host("balancer").StartLogged(cmd, log)
	return log, err
}

// path is a way to the server.
type path struct {
	name string
	to   netip.Addr
	net.Conn
}

func (e *experiment) requests(ctx context.Context, node *lab.Host, log string) error {
	paths := []*path{{name: "request by the node's proxy", to: kube.ServiceAddr(0)}, {name: "request by a central load balancer", to: vip}}
	for _, p := range paths {
		_, served := cluster.Await(ctx, 50*time.Millisecond, cluster.StartLimit, func() bool {
			once, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			var err error
			p.Conn, err = node.Dial(once, netip.Addr{}, netip.AddrPortFrom(p.to, testbed.ServicePort))
			return err == nil
		})
		if !served {
			return errors.Join(ctx.Err(), fmt.Errorf("%s: no connection: %s", p.name, cluster.LastLines(log)))
		}
		defer p.Close()
	}
	for b, i := make([]byte, 64), 0; i < len(paths)*e.Requests; i++ {
		p := paths[i%len(paths)]
		began := time.Now()
		if err := p.SetDeadline(began.Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := p.Write(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if _, err := io.ReadFull(p, b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		e.add(p.name, "µs", float64(time.Since(began))/float64(time.Microsecond))
	}
	return nil
}
