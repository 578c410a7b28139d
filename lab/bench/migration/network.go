package migration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/load"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// site is a cluster: one load balancer and some web servers on their own segment, and the
// folder with its manifests.
type site struct {
	name      string
	addr      netip.Addr // of the load balancer, the next hop of the route
	servers   map[string]netip.Addr
	manifests string
}

const serversPerSite = 2

func makeSite(name string, number int) *site {
	s := &site{name: name, addr: netip.AddrFrom4([4]byte{10, byte(number), 0, 1}), servers: map[string]netip.Addr{}, manifests: filepath.Join(sandbox.WorkDir, "migration", name)}
	for i := range serversPerSite {
		s.servers[fmt.Sprintf("%s-web%d", name, i+1)] = netip.AddrFrom4([4]byte{10, byte(number), 0, byte(11 + i)})
	}
	return s
}

func (s *site) balancer() string { return s.name + "-lb" }

// vip is the address of the web service, wherever it is.
var vip = netip.MustParseAddrPort("192.0.2.80:80")

// network is what the service moves in. No load balancer fails, so there is no BFD, which
// would end sessions on a busy machine. The router knows no site: it accepts BGP sessions
// from both segments.
//
//	                           ┌── old: load balancer 10.1.0.1, web servers 10.1.0.11, .12
//	client 192.168.0.2 ── router
//	                           └── new: load balancer 10.2.0.1, web servers 10.2.0.11, .12
type network struct {
	binary, logs string
	lab          *lab.Lab
	processes    map[string]*lab.Process
	servers      map[string]*load.Server
}

// clientAddrs are the client's addresses: more of them use more next hops.
func clientAddrs() (all []netip.Addr) {
	for i := range 16 {
		all = append(all, netip.AddrFrom4([4]byte{192, 168, 0, byte(2 + i)}))
	}
	return all
}

func newNetwork(ctx context.Context, o Options, sites ...*site) (n *network, err error) {
	var addrs []string
	for _, a := range clientAddrs() {
		addrs = append(addrs, a.String()+"/24")
	}
	const mtu = 1600 // allows a client's 1500 bytes in a tunnel
	t := lab.Topology{
		Title: "A web service that moves between two clusters",
		Hosts: []lab.HostSpec{{Name: "client"}, {Name: "router", Forward: true}},
		Links: []lab.Link{{A: lab.At("client", "eth0", addrs...).Via("192.168.0.1", "default"), B: lab.At("router", "client", "192.168.0.1/24")}},
	}
	for i, s := range sites {
		gateway := fmt.Sprintf("10.%d.0.254", i+1)
		t.Switches = append(t.Switches, lab.SwitchSpec{Name: s.name})
		t.Links = append(t.Links, lab.Link{A: lab.At("router", s.name, gateway+"/16").ForXDP(), B: lab.Port(s.name).ForXDP(), MTU: mtu})
		hosts := map[string]netip.Addr{s.balancer(): s.addr}
		for name, addr := range s.servers {
			hosts[name] = addr
		}
		for name, addr := range hosts {
			t.Hosts = append(t.Hosts, lab.HostSpec{Name: name})
			t.Links = append(t.Links, lab.Link{A: lab.At(name, "eth0", addr.String()+"/16").Via(gateway, "default").ForXDP(), B: lab.Port(s.name).ForXDP(), MTU: mtu})
		}
	}
	n = &network{binary: o.Binary, logs: sandbox.WorkDir, processes: map[string]*lab.Process{}, servers: map[string]*load.Server{}}
	if n.lab, err = lab.Build(ctx, t); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	return n, n.start("router", "router", "--router-id", "192.168.0.1", "--listen-range", "10.1.0.0/16,10.2.0.0/16", "--bfd=false", "--socket", cluster.Socket("router"))
}

// start runs fairlead in a host.
func (n *network) start(host string, args ...string) error {
	p, err := n.lab.Host(host).StartLogged(exec.Command(n.binary, args...), n.log(host))
	if err != nil {
		return err
	}
	n.processes[host] = p
	return p.GoFirst()
}

func (n *network) log(host string) string { return filepath.Join(n.logs, host+".log") }

// bringUp starts the cluster at a site: web servers, agents of their nodes, and the load
// balancer.
func (n *network) bringUp(s *site) error {
	for name := range s.servers {
		ln, err := n.lab.Host(name).Listen("tcp", ":80")
		if err != nil {
			return err
		}
		n.servers[name] = load.Serve(name, ln)
		if err := n.agent(s, name, "--role", "dsr"); err != nil {
			return err
		}
	}
	return n.agent(s, s.balancer(), "--peer", gatewayOf(s), "--bfd=false")
}

func gatewayOf(s *site) string {
	a := s.addr.As4()
	a[3] = 254
	return netip.AddrFrom4(a).String()
}

func (n *network) agent(s *site, host string, args ...string) error {
	return n.start(host, cluster.Agent(host, s.manifests, args...)...)
}

// stop ends what remains of the cluster at a site after its load balancer: servers close
// each connection after its next answer, and those left after limit break.
func (n *network) stop(ctx context.Context, s *site, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var errs []error
	for name := range s.servers {
		_ = n.servers[name].Stop(ctx) // the client counts connections that break
		delete(n.servers, name)
		errs = append(errs, n.processes[name].Stop(limit))
	}
	for _, host := range append(s.names(), s.balancer()) {
		errs = append(errs, os.RemoveAll(cluster.BPFFS(host)))
	}
	return errors.Join(errs...)
}

func (s *site) names() (all []string) {
	for name := range s.servers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// hops returns the next hops of the service in the router's kernel.
func (n *network) hops() ([]netip.Addr, error) {
	return cluster.HopsTo(n.lab.Host("router"), netip.PrefixFrom(vip.Addr(), 32))
}

// routed waits until the router's kernel has exactly these load balancers as next hops.
func (n *network) routed(ctx context.Context, sites ...*site) (at time.Time, err error) {
	var want, have []netip.Addr
	logs := ""
	for _, s := range sites {
		want, logs = append(want, s.addr), logs+cluster.LastLines(n.log(s.balancer()))
	}
	slices.SortFunc(want, netip.Addr.Compare)
	at, ok := cluster.Await(ctx, 2*time.Millisecond, cluster.StartLimit, func() bool {
		have, err = n.hops()
		return err == nil && slices.Equal(have, want)
	})
	if !ok {
		return at, errors.Join(ctx.Err(), err, fmt.Errorf("the router's kernel has the next hops %v, want %v: %s", have, want, logs))
	}
	return at, nil
}

func (n *network) close() error {
	for _, p := range n.processes {
		_ = p.Stop(5 * time.Second) // how it ended does not matter any more
	}
	var errs []error
	for _, s := range n.servers {
		errs = append(errs, s.Kill())
	}
	errs = append(errs, n.lab.Close(), cluster.RemoveFolders(filepath.Join(sandbox.WorkDir, "migration")))
	return errors.Join(errs...)
}
