package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/ipvs"
	dpproxy "github.com/fairlead/fairlead/dataplane/proxy"
	"github.com/fairlead/fairlead/lab/bench/testbed"
	"github.com/fairlead/fairlead/lab/kube"
)

// run runs a command with the given input. Its output is part of the error.
func run(ctx context.Context, input []byte, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader(input)
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: %w: %.500s", argv[0], err, said))
	}
	return nil
}

// port is one of the ports of a Service, which forwards to testbed.Port of each endpoint.
type port struct {
	protocol service.Protocol
	number   uint16
}

// shape is what every Service has.
type shape struct {
	endpoints int
	ports     []port
}

var (
	single = []port{{service.TCP, testbed.ServicePort}}
	// several are as many as in the slides' test of bandwidth.
	several = []port{{service.TCP, testbed.ServicePort}, {service.UDP, testbed.ServicePort}, {service.TCP, testbed.ServicePort + 1}, {service.UDP, testbed.ServicePort + 1}}
)

// target returns an endpoint of a Service.
func (s shape) target(i, endpoint int) netip.AddrPort {
	return netip.AddrPortFrom(kube.EndpointAddr(i*s.endpoints+endpoint), testbed.Port)
}

// tables contains iptables rules: one chain per Service and protocol, and per endpoint.
// Chains of Services are reached either through a linear list of rules, one for each port,
// or through a search tree of the /16 and /24 networks of their addresses (the slides'
// CIDR list).
type tables struct {
	shape
	tree bool
	nets map[string]bool // networks that have a chain
}

// restore is the program for the kernel's legacy tables, which are rewritten completely
// for every change.
const restore = "iptables-legacy-restore"

// service writes the chains of one Service, and the rules that jump to them.
func (t *tables) service(w io.Writer, i int) {
	vip, from := kube.ServiceAddr(i), "KUBE-SERVICES"
	if t.tree {
		from = t.branch(w, vip)
	}
	done := map[service.Protocol]bool{}
	for _, p := range t.ports {
		name := strings.ToLower(p.protocol.String())
		if !done[p.protocol] {
			done[p.protocol] = true
			t.chains(w, i, name)
		}
		fmt.Fprintf(w, "-A %s -d %s/32 -p %s -m %[3]s --dport %[4]d -j SVC-%[3]s-%[5]d\n", from, vip, name, p.number, i)
	}
}

// chains writes the chains of a Service for one protocol.
func (t *tables) chains(w io.Writer, i int, protocol string) {
	fmt.Fprintf(w, ":SVC-%s-%d - [0:0]\n", protocol, i)
	for e := range t.endpoints {
		fmt.Fprintf(w, ":SEP-%s-%d-%d - [0:0]\n", protocol, i, e)
		choice := ""
		if left := t.endpoints - e; left > 1 {
			choice = fmt.Sprintf(" -m statistic --mode random --probability %.5f", 1/float64(left))
		}
		fmt.Fprintf(w, "-A SVC-%s-%d%s -j SEP-%[1]s-%[2]d-%[4]d\n", protocol, i, choice, e)
		fmt.Fprintf(w, "-A SEP-%s-%d-%d -p %[1]s -m %[1]s -j DNAT --to-destination %[4]s\n", protocol, i, e, t.target(i, e))
	}
}

// branch returns the chain for the /24 network of an address, and creates missing chains.
func (t *tables) branch(w io.Writer, vip netip.Addr) string {
	from := "KUBE-SERVICES"
	for _, bits := range []int{16, 24} {
		p, _ := vip.Prefix(bits)
		name := fmt.Sprintf("NET-%s-%d", p.Addr(), bits)
		if !t.nets[name] {
			t.nets[name] = true
			fmt.Fprintf(w, ":%s - [0:0]\n-A %s -d %s -j %s\n", name, from, p, name)
		}
		from = name
	}
	return from
}

func (t *tables) fill(ctx context.Context, n int) error {
	t.nets = map[string]bool{}
	var w bytes.Buffer
	w.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\n")
	for i := range n {
		t.service(&w, i)
	}
	w.WriteString("COMMIT\n")
	return run(ctx, w.Bytes(), restore)
}

func (t *tables) add(ctx context.Context, i int) error {
	var w bytes.Buffer
	w.WriteString("*nat\n")
	t.service(&w, i)
	w.WriteString("COMMIT\n")
	return run(ctx, w.Bytes(), restore, "--noflush")
}

func (t *tables) clear(ctx context.Context) error {
	return run(ctx, []byte("*nat\nCOMMIT\n"), restore)
}

// maps contains nftables maps: one from addresses to chains, as kube-proxy uses.
type maps struct{ shape }

// service writes one Service's chain and its map element.
func (m maps) service(w io.Writer, i int) {
	fmt.Fprintf(w, "add chain ip rules svc-%d\nadd rule ip rules svc-%[1]d meta l4proto tcp dnat ip to ", i)
	if m.endpoints == 1 {
		fmt.Fprint(w, m.target(i, 0))
	} else {
		fmt.Fprintf(w, "numgen random mod %d map {", m.endpoints)
		for e := range m.endpoints {
			to := m.target(i, e)
			fmt.Fprintf(w, " %d : %s . %d,", e, to.Addr(), to.Port())
		}
		fmt.Fprint(w, " }")
	}
	fmt.Fprintf(w, "\nadd element ip rules services { %s . tcp . %d : goto svc-%d }\n", kube.ServiceAddr(i), testbed.ServicePort, i)
}

func (m maps) fill(ctx context.Context, n int) error {
	var w bytes.Buffer
	w.WriteString(`add table ip rules
add map ip rules services { type ipv4_addr . inet_proto . inet_service : verdict; }
add chain ip rules output { type nat hook output priority -100; }
add rule ip rules output ip daddr . meta l4proto . th dport vmap @services
`)
	for i := range n {
		m.service(&w, i)
	}
	return run(ctx, w.Bytes(), "nft", "-f", "-")
}

func (m maps) add(ctx context.Context, i int) error {
	var w bytes.Buffer
	m.service(&w, i)
	return run(ctx, w.Bytes(), "nft", "-f", "-")
}

func (maps) clear(ctx context.Context) error {
	return run(ctx, []byte("add table ip rules\ndelete table ip rules\n"), "nft", "-f", "-")
}

// plane is Fairlead's proxy data plane, without the agent.
type plane struct {
	shape
	ground *testbed.Ground
	*dpproxy.DataPlane
}

// pins is the folder in which the plane pins its maps.
const pins = "/sys/fs/bpf/rules"

func (p *plane) frontend(i int) proxy.Frontend {
	f := proxy.Frontend{Key: proxy.Key{Addr: kube.ServiceAddr(i), Port: testbed.ServicePort, Protocol: service.TCP}}
	for e := range p.endpoints {
		f.Inside.Targets = append(f.Inside.Targets, proxy.Target{Addr: p.target(i, e)})
	}
	f.Outside = f.Inside
	return f
}

func (p *plane) fill(ctx context.Context, n int) (err error) {
	p.DataPlane, err = dpproxy.Open(dpproxy.Config{PinDir: pins, Cgroup: p.ground.Cgroup})
	if err != nil {
		return err
	}
	var set []proxy.Frontend
	for i := range n {
		set = append(set, p.frontend(i))
	}
	return errors.Join(p.Apply(set, nil), ctx.Err())
}

func (p *plane) add(_ context.Context, i int) error {
	return p.Apply([]proxy.Frontend{p.frontend(i)}, nil)
}

func (p *plane) clear(context.Context) error {
	if p.DataPlane == nil {
		return nil
	}
	err := p.Detach()
	p.DataPlane = nil
	return errors.Join(err, os.RemoveAll(pins))
}

// virtual contains IPVS services, written by Fairlead's IPVS data plane.
type virtual struct {
	shape
	*ipvs.DataPlane
	held int
}

// fill adds what is missing.
func (v *virtual) fill(ctx context.Context, n int) (err error) {
	if v.DataPlane == nil {
		if v.DataPlane, err = ipvs.Open(ipvs.Config{}); err != nil {
			return err
		}
	}
	for ; v.held < n; v.held++ {
		if err := errors.Join(ctx.Err(), v.add(ctx, v.held)); err != nil {
			return err
		}
	}
	return nil
}

func (v *virtual) add(_ context.Context, i int) (err error) {
	var backends []service.Backend
	for e := range v.endpoints {
		backends = append(backends, service.Backend{Addr: v.target(i, e), Weight: 1})
	}
	for _, p := range v.ports {
		err = errors.Join(err, v.Upsert(desired.Frontend{
			Key:    service.Key{VIP: kube.ServiceAddr(i), Port: p.number, Protocol: p.protocol},
			Method: service.NAT, Scheduler: service.RoundRobin, Survival: service.FlowTable, Backends: backends,
		}))
	}
	return err
}

func (v *virtual) clear(context.Context) error {
	if v.DataPlane == nil {
		return nil
	}
	list, err := v.List()
	for _, f := range list {
		err = errors.Join(err, v.Delete(f.Key))
	}
	err = errors.Join(err, v.Close())
	v.DataPlane, v.held = nil, 0
	return err
}
