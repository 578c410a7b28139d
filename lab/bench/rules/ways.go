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

// tables contains iptables rules: one chain per Service and per endpoint. Chains of
// Services are reached either through a linear list of rules, or through a search tree of
// the /16 and /24 networks of their addresses (the slides' CIDR list).
type tables struct {
	tree bool
	nets map[string]bool // networks that have a chain
}

// restore is the program for the kernel's legacy tables, which are rewritten completely
// for every change.
const restore = "iptables-legacy-restore"

// service writes the chains of one Service, and the rule that jumps to it.
func (t *tables) service(w io.Writer, i int) {
	for e := range endpoints {
		fmt.Fprintf(w, ":SEP-%d-%d - [0:0]\n", i, e)
	}
	fmt.Fprintf(w, ":SVC-%d - [0:0]\n", i)
	vip, from := kube.ServiceAddr(i), "KUBE-SERVICES"
	if t.tree {
		from = t.branch(w, vip)
	}
	fmt.Fprintf(w, "-A %s -d %s/32 -p tcp -m tcp --dport %d -j SVC-%d\n", from, vip, testbed.ServicePort, i)
	for e := range endpoints {
		if left := endpoints - e; left > 1 {
			fmt.Fprintf(w, "-A SVC-%d -m statistic --mode random --probability %.5f -j SEP-%d-%d\n", i, 1/float64(left), i, e)
		} else {
			fmt.Fprintf(w, "-A SVC-%d -j SEP-%d-%d\n", i, i, e)
		}
		fmt.Fprintf(w, "-A SEP-%d-%d -p tcp -m tcp -j DNAT --to-destination %s:%d\n", i, e, kube.EndpointAddr(i*endpoints+e), testbed.Port)
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
type maps struct{}

// service writes one Service's chain and its map element.
func (maps) service(w io.Writer, i int) {
	fmt.Fprintf(w, "add chain ip rules svc-%d\nadd rule ip rules svc-%d meta l4proto tcp dnat ip to numgen random mod %d map {", i, i, endpoints)
	for e := range endpoints {
		fmt.Fprintf(w, " %d : %s . %d,", e, kube.EndpointAddr(i*endpoints+e), testbed.Port)
	}
	fmt.Fprintf(w, " }\nadd element ip rules services { %s . tcp . %d : goto svc-%d }\n", kube.ServiceAddr(i), testbed.ServicePort, i)
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
	ground *testbed.Ground
	*dpproxy.DataPlane
}

// pins is the folder in which the plane pins its maps.
const pins = "/sys/fs/bpf/rules"

func newPlane(g *testbed.Ground) (*plane, error) { return &plane{ground: g}, nil }

func frontend(i int) proxy.Frontend {
	f := proxy.Frontend{Key: proxy.Key{Addr: kube.ServiceAddr(i), Port: testbed.ServicePort, Protocol: service.TCP}}
	for e := range endpoints {
		f.Inside.Targets = append(f.Inside.Targets, proxy.Target{Addr: netip.AddrPortFrom(kube.EndpointAddr(i*endpoints+e), testbed.Port)})
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
		set = append(set, frontend(i))
	}
	return errors.Join(p.Apply(set, nil), ctx.Err())
}

func (p *plane) add(_ context.Context, i int) error {
	return p.Apply([]proxy.Frontend{frontend(i)}, nil)
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
type virtual struct{ *ipvs.DataPlane }

func (v *virtual) fill(ctx context.Context, n int) (err error) {
	if v.DataPlane, err = ipvs.Open(ipvs.Config{}); err != nil {
		return err
	}
	for i := range n {
		if err := errors.Join(ctx.Err(), v.add(ctx, i)); err != nil {
			return err
		}
	}
	return nil
}

func (v *virtual) add(_ context.Context, i int) error {
	f := desired.Frontend{
		Key:    service.Key{VIP: kube.ServiceAddr(i), Port: testbed.ServicePort, Protocol: service.TCP},
		Method: service.NAT, Scheduler: service.RoundRobin, Survival: service.FlowTable,
	}
	for e := range endpoints {
		f.Backends = append(f.Backends, service.Backend{Addr: netip.AddrPortFrom(kube.EndpointAddr(i*endpoints+e), testbed.Port), Weight: 1})
	}
	return v.Upsert(f)
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
	v.DataPlane = nil
	return err
}
