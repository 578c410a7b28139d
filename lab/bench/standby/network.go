package standby

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/lab/topology"
)

// The ports of backends: one swallows bytes, one answers datagrams.
const (
	sinkPort = 9
	echoPort = 7
)

// vips are the addresses of the same backends: one on the segment, and one that the router
// only knows by BGP.
var vips = map[string]netip.Addr{Standby: netip.MustParseAddr("10.0.0.100"), ECMP: netip.MustParseAddr("10.9.0.1")}

// network is a segment with load balancers whose links are limited for packets to VIPs.
//
//	client 192.168.0.2 ── router 10.0.0.254 ── switch ─┬─ lb1 10.0.0.1 …
//	                                                   └─ web1 10.0.0.21, web2 .22
type network struct {
	o         Options
	lab       *lab.Lab
	dir       string
	sinks     []*throughput.Sink
	echoes    []net.PacketConn
	processes []*lab.Process
}

func balancer(i int) string { return fmt.Sprintf("lb%d", i+1) }

var webs = map[string]string{"web1": "10.0.0.21", "web2": "10.0.0.22"}

func newNetwork(ctx context.Context, o Options) (n *network, err error) {
	const mtu = 1600 // allows a client's 1500 bytes in a tunnel
	t := lab.Topology{
		Title:    "Load balancers on one segment",
		Hosts:    []lab.HostSpec{{Name: "client"}, {Name: "router", Forward: true}},
		Switches: []lab.SwitchSpec{{Name: "switch"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", "192.168.0.2/24").Via("192.168.0.1", "default"), B: lab.At("router", "eth1", "192.168.0.1/24")},
			{A: lab.At("router", "eth0", "10.0.0.254/24").ForXDP(), B: lab.Port("switch").ForXDP(), MTU: mtu},
		},
	}
	plug := func(name, addr string, port lab.End) {
		t.Hosts = append(t.Hosts, lab.HostSpec{Name: name})
		t.Links = append(t.Links, lab.Link{A: lab.At(name, "eth0", addr+"/24").Via("10.0.0.254", "default").ForXDP(), B: port.ForXDP(), MTU: mtu})
	}
	for i := range o.Balancers {
		plug(balancer(i), fmt.Sprintf("10.0.0.%d", i+1), lab.Port("switch").Shaped(limit(o.Rate*1e6)))
	}
	for name, addr := range webs {
		plug(name, addr, lab.Port("switch"))
	}
	n = &network{o: o, dir: filepath.Join(sandbox.WorkDir, "standby")}
	if n.lab, err = lab.Build(ctx, t); err != nil {
		return nil, err
	}
	if err := n.bringUp(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// limit limits packets to each VIP, and not those between load balancers and router.
func limit(rate uint64) lab.Shape {
	shape := topology.ServiceShape(rate, netip.PrefixFrom(vips[Standby], 32))
	other := topology.ServiceShape(rate, netip.PrefixFrom(vips[ECMP], 32))
	shape.Rate += rate
	shape.Classes = append(shape.Classes, other.Classes...)
	return shape
}

const manifest = `apiVersion: v1
kind: Service
metadata:
  name: NAME
  labels: {app: NAME}
  annotations: {fairlead.io/addresses: VIP, fairlead.io/health-check: none}
spec: {type: LoadBalancer, ports: [{name: sink, port: 9}, {name: echo, port: 7, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME, labels: {kubernetes.io/service-name: NAME}}
addressType: IPv4
ports: [{name: sink, port: 9}, {name: echo, port: 7, protocol: UDP}]
endpoints: [{addresses: [10.0.0.21], nodeName: web1}, {addresses: [10.0.0.22], nodeName: web2}]
---
apiVersion: fairlead.io/v1alpha1
kind: Advertisement
metadata: {name: NAME}
spec: {mode: MODE, serviceSelector: {matchLabels: {app: NAME}}}
`

func (n *network) bringUp(ctx context.Context) error {
	for way, mode := range map[string]string{Standby: "Layer2", ECMP: "BGP"} {
		name := strings.ToLower(mode)
		text := strings.NewReplacer("NAME", name, "VIP", vips[way].String(), "MODE", mode).Replace(manifest)
		if err := cluster.ReplaceFile(filepath.Join(n.dir, "services", name+".yaml"), text); err != nil {
			return err
		}
	}
	if err := n.start("router", "router", "--router-id", "10.0.0.254", "--listen-range", "10.0.0.0/24", "--socket", cluster.Socket("router")); err != nil {
		return err
	}
	for name, addr := range webs {
		sink, err := throughput.Listen(n.lab.Host(name), sinkPort)
		if err != nil {
			return err
		}
		n.sinks = append(n.sinks, sink)
		echo, err := flows.Answer(n.lab.Host(name), netip.AddrPortFrom(netip.MustParseAddr(addr), echoPort))
		if err != nil {
			return err
		}
		n.echoes = append(n.echoes, echo)
		if err := n.agent(name, "--role", "dsr"); err != nil {
			return err
		}
	}
	var members []string
	for i := range n.o.Balancers {
		members = append(members, fmt.Sprintf("10.0.0.%d", i+1))
	}
	for i := range n.o.Balancers {
		if err := n.agent(balancer(i), "--peer", "10.0.0.254", "--l2-interfaces", "eth0", "--l2-members", strings.Join(members, ",")); err != nil {
			return err
		}
	}
	return n.ready(ctx)
}

func (n *network) agent(host string, args ...string) error {
	return n.start(host, cluster.Agent(host, filepath.Join(n.dir, "services"), args...)...)
}

// start runs fairlead in a host.
func (n *network) start(host string, args ...string) error {
	p, err := n.lab.Host(host).StartLogged(exec.Command(n.o.Binary, args...), n.log(host))
	if err != nil {
		return err
	}
	n.processes = append(n.processes, p)
	return p.GoFirst()
}

func (n *network) log(host string) string { return filepath.Join(n.dir, host+".log") }

// ready waits until the router has all load balancers as next hops of one VIP, and one of
// them owns the other.
func (n *network) ready(ctx context.Context) error {
	var why error
	if _, ok := cluster.Await(ctx, 10*time.Millisecond, cluster.StartLimit, func() bool {
		_, why = n.owner(ctx)
		if hops, err := cluster.HopsTo(n.lab.Host("router"), netip.PrefixFrom(vips[ECMP], 32)); why == nil && (err != nil || len(hops) != n.o.Balancers) {
			why = errors.Join(err, fmt.Errorf("the router has %d next hops, want %d", len(hops), n.o.Balancers))
		}
		return why == nil
	}); !ok {
		return errors.Join(ctx.Err(), why, errors.New(cluster.LastLines(n.log(balancer(0)))))
	}
	return nil
}

// owner returns the load balancer that owns the VIP on the segment, if all agree.
func (n *network) owner(ctx context.Context) (owner string, err error) {
	for i := range n.o.Balancers {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		st, err := status.Fetch(ctx, cluster.Socket(balancer(i)))
		cancel()
		if err != nil {
			return "", err
		}
		for _, r := range st.Routes {
			switch {
			case r.Layer2 == nil:
			case !strings.Contains(r.Layer2.Reason, fmt.Sprintf("of %d members", n.o.Balancers)):
				return "", fmt.Errorf("%s: %s", balancer(i), r.Layer2.Reason)
			case r.Layer2.State == "owner" && owner != "":
				return "", fmt.Errorf("%s and %s own the VIP", owner, balancer(i))
			case r.Layer2.State == "owner":
				owner = balancer(i)
			}
		}
	}
	if owner == "" {
		return "", errors.New("nobody owns the VIP")
	}
	return owner, nil
}

func (n *network) close() error {
	for _, p := range n.processes {
		_ = p.Stop(5 * time.Second) // how it ended does not matter any more
	}
	var errs []error
	for _, s := range n.sinks {
		errs = append(errs, s.Close())
	}
	for _, e := range n.echoes {
		errs = append(errs, e.Close())
	}
	errs = append(errs, n.lab.Close(), cluster.RemoveFolders(n.dir))
	return errors.Join(errs...)
}
