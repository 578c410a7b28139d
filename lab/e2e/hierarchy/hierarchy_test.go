package hierarchy_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/dsr"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab"
)

var key = service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.UDP}

var (
	middles = []string{"172.16.0.2", "172.16.0.3"}
	servers = []string{"172.16.0.11", "172.16.0.12", "172.16.0.13", "172.16.0.14"}
)

const (
	top    = "172.16.0.1"
	router = "172.16.0.254"
)

// world is a load balancer, two below it, and four servers with DSR agents, all on one
// switch. Servers answer the client through the router.
//
//	client ── router ──┬── top 172.16.0.1
//	                   ├── middles .2, .3
//	                   └── servers .11 to .14
type world struct {
	*testing.T
	lab *lab.Lab
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	topology := lab.Topology{
		Hosts:    []lab.HostSpec{{Name: "client"}, {Name: "router", Forward: true}},
		Switches: []lab.SwitchSpec{{Name: "net"}},
		Links: []lab.Link{
			{A: lab.At("client", "c0", "192.168.0.2/24").Via("192.168.0.1", "default"), B: lab.At("router", "r0", "192.168.0.1/24")},
			{A: lab.At("router", "r1", router+"/24").Via(top, key.VIP.String()+"/32"), B: lab.End{Host: "net", GRO: true}},
		},
	}
	for _, addr := range append(append([]string{top}, middles...), servers...) {
		topology.Hosts = append(topology.Hosts, lab.HostSpec{Name: addr, Sysctls: map[string]string{"net.ipv4.conf.all.rp_filter": "0"}})
		topology.Links = append(topology.Links, lab.Link{
			A: lab.At(addr, "eth0", addr+"/24").Via(router, "default"), B: lab.End{Host: "net", GRO: true},
		})
	}
	for i := range topology.Links {
		topology.Links[i].A.TxChecksumOff = true // XDP forwards checksums as they are
	}
	l, err := lab.Build(t.Context(), topology)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return &world{t, l}
}

// pins returns a host's folder; BPF file systems have no names with dots.
func pins(at string) string { return "/sys/fs/bpf/" + strings.ReplaceAll(at, ".", "-") }

func endpoint(addr string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), key.Port)
}

// balance runs a load balancer with these backends.
func (w *world) balance(at string, m service.Method, backends []string) {
	w.Helper()
	var d *xdp.DataPlane
	must(w, w.lab.Host(at).Do(func() (err error) {
		d, err = xdp.Open(xdp.Config{Interfaces: []string{"eth0"}, PinDir: pins(at), SourceV4: netip.MustParseAddr(at), MaxFlows: 1024})
		return err
	}))
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("%s drops %v", at, d.Describe().Drops)
		}
		must(w, d.Detach())
	})
	f := desired.Frontend{Key: key, Method: m, Scheduler: service.Maglev, RingSize: 251, Survival: service.HashOnly}
	for _, b := range backends {
		f.Backends = append(f.Backends, service.Backend{Addr: endpoint(b), Weight: 1})
		w.resolve(at, b)
	}
	must(w, d.Upsert(f))
}

// resolve makes a host's kernel find the MAC address of another, as an agent does for dr.
func (w *world) resolve(at, neighbor string) {
	w.Helper()
	must(w, w.lab.Host(at).Do(func() error {
		c, err := net.Dial("udp", endpoint(neighbor).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(nil)
		return err
	}))
}

// serve makes a server answer, behind a DSR agent.
func (w *world) serve(at string, m service.Method) {
	w.Helper()
	var a *dsr.Agent
	must(w, w.lab.Host(at).Do(func() (err error) {
		a, err = dsr.Open(dsr.Config{PinDir: pins(at), MaxFlows: 4096, Uplinks: []string{"eth0"}, Log: slog.New(slog.DiscardHandler)})
		return err
	}))
	w.Cleanup(func() { must(w, a.Detach()) })
	must(w, a.Set([]dsr.Entry{{Key: key, Method: m, Server: endpoint(at)}}))
	u, err := w.lab.Host(at).ListenPacket("udp", endpoint(at).String())
	must(w, err)
	w.Cleanup(func() { u.Close() })
	go func() {
		for packet := make([]byte, 1500); ; {
			if _, from, err := u.ReadFrom(packet); err != nil {
				return
			} else if _, err := u.WriteTo([]byte(at), from); err != nil {
				return
			}
		}
	}()
}

// ask sends requests in 32 flows and returns the replies by server.
func (w *world) ask(length time.Duration) map[string]int {
	w.Helper()
	var (
		mu      sync.Mutex
		replies = map[string]int{}
		all     sync.WaitGroup
	)
	end := time.Now().Add(length)
	for range 32 {
		var c net.Conn
		must(w, w.lab.Host("client").Do(func() (err error) {
			c, err = net.Dial("udp", endpoint(key.VIP.String()).String())
			return err
		}))
		all.Go(func() {
			defer c.Close()
			n, from := exchange(c, end)
			mu.Lock()
			defer mu.Unlock()
			replies[from] += n
		})
	}
	all.Wait()
	return replies
}

// exchange sends a request after each reply, or after a second without one, and returns
// the number of replies and the last server.
func exchange(c net.Conn, end time.Time) (replies int, from string) {
	reply := make([]byte, 100)
	for now := time.Now(); now.Before(end); now = time.Now() {
		_ = c.SetDeadline(now.Add(time.Second))
		if _, err := c.Write([]byte("who?")); err != nil {
			continue
		}
		if n, err := c.Read(reply); err == nil {
			replies, from = replies+1, string(reply[:n])
		}
	}
	return replies, from
}

// topCost returns how often the top load balancer's program has run, and how long.
func (w *world) topCost() (runs uint64, took time.Duration) {
	w.Helper()
	must(w, w.lab.Host(top).Do(func() error {
		nic, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(nic.Attrs().Xdp.ProgId))
		if err != nil {
			return err
		}
		defer p.Close()
		s, err := p.Stats()
		if err == nil {
			runs, took = s.RunCount, s.Runtime
		}
		return err
	}))
	return runs, took
}

// TestHierarchy sends requests through load balancers below a load balancer, and through
// one alone, and logs throughput and cost. The upper one leaves the VIP in packets (dr):
// the middle ones do not end tunnels, and would not find the VIP after dsr-nat.
func TestHierarchy(t *testing.T) {
	stats, err := ebpf.EnableStats(0)
	must(t, err)
	defer stats.Close()
	for _, m := range []service.Method{service.Tunnel, service.DSRNAT} {
		for _, deep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/hierarchy=%v", m, deep), func(t *testing.T) { compare(newWorld(t), m, deep) })
		}
	}
}

func compare(w *world, m service.Method, deep bool) {
	for _, s := range servers {
		w.serve(s, m)
	}
	if deep {
		w.balance(top, service.DR, middles)
		w.balance(middles[0], m, servers[:2])
		w.balance(middles[1], m, servers[2:])
	} else {
		w.balance(top, m, servers)
	}
	w.ask(100 * time.Millisecond) // finds the MAC addresses
	const length = time.Second
	runs, took := w.topCost()
	replies := w.ask(length)
	runs2, took2 := w.topCost()
	total := 0
	for _, s := range servers {
		if replies[s] == 0 {
			w.Errorf("%s answers nothing: %v", s, replies)
		}
		total += replies[s]
	}
	w.Logf("%.0f replies/s; the upper load balancer takes %d ns a packet", float64(total)/length.Seconds(), (took2-took).Nanoseconds()/max(1, int64(runs2-runs)))
}
