package cni

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/transfer"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/multisite"
)

const (
	// balancerPod and firstServer are the last bytes of the first addresses. Each maker
	// gets the next balancerPod address.
	balancerPod = 20
	firstServer = 100
	// requesters is the number of concurrent connections of the client.
	requesters = 64
	// requesting is how many seconds requests run for each second of a measurement.
	requesting = 0.4
	// firstPort is the base port: the service with N backends uses firstPort+N.
	firstPort = 7000
)

// pins is the folder in which the load balancers' agents pin their BPF objects.
const pins = "/sys/fs/bpf/cni"

// flannel contains flannel's networks, in the order of the paper.
var flannel = []string{HostGW, VXLAN, TunUDP}

// The load balancers that are measured: Fairlead (IPVS in the paper's Fig. 11) and
// iptables rules like those of kube-proxy (Fig. 12).
const (
	ours     = "fairlead"
	iptables = "iptables"
)

// makers contains both, in the order of the paper.
var makers = []string{ours, iptables}

// balanced is a load balancer in a pod in Daejeon, with its backends in pods in Busan.
type balanced struct {
	kind, maker string
	pod         place
	vip         netip.Addr
	// servers contains all backends. Each service uses the first few of them, at a port.
	servers []netip.Addr
	port    int
	// process is the load balancer, if it is nginx.
	process *lab.Process
}

func (b *balanced) name() string { return b.maker + "-" + b.kind }

// at is the service with the first n backends.
func (b *balanced) at(n int) netip.AddrPort { return netip.AddrPortFrom(b.vip, uint16(firstPort+n)) }

// balancer measures requests through a load balancer in each of flannel's networks.
func balancer(ctx context.Context, o Options, r *bench.Report) (err error) {
	n, err := newNetwork(ctx, o, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(), os.RemoveAll(pins)) }()
	client, err := transfer.Start(n.Lab.Host(n.Daejeon.Server))
	if err != nil {
		return err
	}
	// A packet that a program redirects loses the mark that its checksum is still to be
	// computed.
	if err := n.Lab.Host(n.Daejeon.Server).Offload(podDev, false); err != nil {
		return err
	}
	var all []*balanced
	for _, kind := range flannel {
		servers, err := n.servers(ctx, kind)
		if err != nil {
			return fmt.Errorf("servers in %s: %w", kind, err)
		}
		for i, maker := range makers {
			b := &balanced{kind: kind, maker: maker, vip: multisite.Nth(n.Daejeon.Bridge(15), 1+len(all)), servers: servers, port: transfer.EchoPort}
			if err := n.balance(ctx, b, balancerPod+i); err != nil {
				return fmt.Errorf("balancer %s: %w", b.name(), err)
			}
			all = append(all, b)
		}
	}
	for _, b := range all {
		if err := n.await(ctx, client, b); err != nil {
			return err
		}
	}
	o.logf("balancer, %d rounds", o.Rounds)
	return n.requests(ctx, client, all, r)
}

// servers creates the pods behind the load balancers of a network, and returns their
// addresses.
func (n *network) servers(ctx context.Context, kind string) (all []netip.Addr, err error) {
	for i := range slices.Max(n.o.Pods) {
		server, err := n.bridged(ctx, n.Busan, kind, fmt.Sprintf("server%d-%s", i+1, kind), firstServer+i, false)
		if err != nil {
			return nil, err
		}
		if err := server.host.Offload(podDev, false); err != nil {
			return nil, err
		}
		if _, err := transfer.Start(server.host); err != nil {
			return nil, err
		}
		all = append(all, server.addr)
	}
	return all, nil
}

// balance creates a load balancer's pod and starts the load balancer in it.
func (n *network) balance(ctx context.Context, b *balanced, last int) (err error) {
	if b.pod, err = n.bridged(ctx, n.Daejeon, b.kind, b.name(), last, true); err != nil {
		return err
	}
	node := n.Lab.Host(n.Daejeon.Node).Netlink()
	if err := node.RouteReplace(&netlink.Route{Dst: lab.IPNet(netip.PrefixFrom(b.vip, 32)), Gw: b.pod.addr.AsSlice()}); err != nil {
		return err
	}
	switch b.maker {
	case iptables:
		return b.writeRules(ctx, n.o.Pods)
	case webServer:
		return b.startProxy(n.o.Pods)
	}
	return n.startAgent(b)
}

// rules are like kube-proxy's for a Service: they DNAT each connection to a random
// backend, and masquerade it so that replies return through the load balancer.
func (b *balanced) rules(pods []int) string {
	var rules strings.Builder
	rules.WriteString("*nat\n")
	for _, n := range pods {
		for i, server := range b.servers[:n] {
			fmt.Fprintf(&rules, "-A PREROUTING -d %s/32 -p tcp --dport %d -m statistic --mode random --probability %.5f -j DNAT --to-destination %s:%d\n",
				b.vip, firstPort+n, 1/float64(n-i), server, b.port)
		}
	}
	rules.WriteString("-A POSTROUTING -p tcp -j MASQUERADE\nCOMMIT\n")
	return rules.String()
}

func (b *balanced) writeRules(ctx context.Context, pods []int) error {
	cmd := exec.CommandContext(ctx, "iptables-legacy-restore")
	cmd.Stdin = strings.NewReader(b.rules(pods))
	var said bytes.Buffer
	cmd.Stderr = &said
	p, err := b.pod.host.Start(cmd)
	if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %.500s", cmd.Path, err, &said)
	}
	return nil
}

//go:embed balancer.yaml.tmpl
var manifestText string

var manifestTemplate = template.Must(template.New("manifest").Parse(manifestText))

// manifest returns one service for each number of backends.
func (b *balanced) manifest(pods []int) (string, error) {
	type service struct {
		Name, VIP        string
		Port, TargetPort int
		Endpoints        []netip.Addr
	}
	var services []service
	for _, n := range pods {
		services = append(services, service{fmt.Sprintf("echo-%d", n), b.vip.String(), firstPort + n, b.port, b.servers[:n]})
	}
	var text strings.Builder
	err := manifestTemplate.Execute(&text, services)
	return text.String(), err
}

// startAgent runs Fairlead's agent in the load balancer's pod. It has no peers to
// advertise to.
func (n *network) startAgent(b *balanced) error {
	name := b.name()
	text, err := b.manifest(n.o.Pods)
	if err != nil {
		return err
	}
	folder := cluster.Manifests(name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "echo.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	return n.start(b.pod.host, name, "agent", "--node", name, "--manifest-dir", folder, "--interface", podDev,
		"--bpffs", filepath.Join(pins, name), "--socket", cluster.Socket(name), "--health-address", "")
}

// await waits until a load balancer answers.
func (n *network) await(ctx context.Context, client *transfer.Peer, b *balanced) error {
	var err error
	_, ok := cluster.Await(ctx, 50*time.Millisecond, cluster.StartLimit, func() bool {
		_, err = client.Do(b.order(slices.Max(n.o.Pods), 1, 0.01))
		return err == nil
	})
	if ok {
		return nil
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the balancer %s never served: %w: %s", b.name(), err, cluster.LastLines(n.logFile(b.name()))))
}

func (b *balanced) order(servers, connections int, seconds float64) transfer.Order {
	return transfer.Order{Ask: b.at(servers), Connections: connections, Seconds: seconds}
}

// point is one point of the figures: a load balancer, with or without RPS, and its number
// of backends.
type point struct {
	*balanced
	steer bool
	of    int
}

func (p point) line() string {
	if p.steer {
		return p.kind + ", RPS"
	}
	return p.kind + ", no RPS"
}

// points returns everything that is measured.
func (o Options) points(all []*balanced) (points []point) {
	for _, b := range all {
		for _, steer := range []bool{false, true} {
			for _, servers := range o.Pods {
				points = append(points, point{b, steer, servers})
			}
		}
	}
	return points
}

// requests measures all points, one at a time in rotating order.
func (n *network) requests(ctx context.Context, client *transfer.Peer, all []*balanced, r *bench.Report) error {
	points := n.o.points(all)
	rates := map[point][]float64{}
	for round := range n.o.Rounds {
		for _, p := range turn(points, round) {
			if err := n.steer(p.steer, all); err != nil {
				return err
			}
			got, err := client.Do(p.order(p.of, requesters, requesting*n.o.Seconds))
			if err = errors.Join(ctx.Err(), err); err != nil {
				return fmt.Errorf("%s, %s, %d servers: %w", p.maker, p.line(), p.of, err)
			}
			rates[p] = append(rates[p], float64(got.Answers)/got.Seconds)
		}
	}
	balancerRows(r, points, rates, n.o)
	return nil
}

func balancerRows(r *bench.Report, points []point, rates map[point][]float64, o Options) {
	for _, p := range points {
		row := bench.Estimated(fmt.Sprintf("balancer, %s, %s, %d servers", p.maker, p.line(), p.of), "requests/s", rates[p]...)
		for _, other := range points {
			if p.maker == ours && other.maker == iptables && other.line() == p.line() && other.of == p.of {
				row = row.Alternating(iptables, rates[p], rates[other])
			}
		}
		r.Rows = append(r.Rows, row)
		o.logf("  %-8s %-24s %2d servers %8.0f requests/s", p.maker, p.line(), p.of, row.Measured)
	}
	r.Note("balancer: fullnat in a pod of Daejeon, %d connections from Daejeon's server with %d bytes and their echo, one after the other, servers in pods of Busan; RPS at the nodes' and the balancers' eth0, to every processor, or none",
		requesters, transfer.QuestionSize)
	r.Note("balancer: the paper's text does not contain the numbers of Fig. 11 to 13; it states that host-gw is fastest, vxlan next and udp far behind, that RPS is much faster than none, that IPVS and iptables hardly differ, and shows one run of 164,718 requests/s on eight machines of 16 processors")
	for i, maker := range makers {
		r.Charts = append(r.Charts, drawRequests(11+i, maker, points, rates))
	}
}

// steer turns RPS on or off on all hosts that packets pass.
func (n *network) steer(on bool, all []*balanced) error {
	mask := uint64(0)
	if on {
		mask = 1<<runtime.NumCPU() - 1
	}
	hosts := []*lab.Host{n.Lab.Host(n.Daejeon.Node), n.Lab.Host(n.Busan.Node)}
	for _, b := range all {
		hosts = append(hosts, b.pod.host)
	}
	for _, h := range hosts {
		if err := h.Steer(podDev, mask); err != nil {
			return err
		}
	}
	return nil
}
