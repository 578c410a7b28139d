package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/sysctl"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/flows"
	"github.com/fairlead/fairlead/lab/flows/flowstest"
	"github.com/fairlead/fairlead/lab/labtest"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/router"
)

var (
	clientAddr = netip.MustParseAddr("192.168.0.2")
	service    = netip.MustParseAddrPort("10.1.1.1:7")
)

// upstream is a network with four load balancers behind an FRR or BIRD router; one
// process is the reflector and the speakers of all four.
//
//	client 192.168.0.2 ── router .1 / 10.0.0.110 ── switch ─┬─ node-104 … node-107
//	                                                        └─ reflector 10.0.0.109
func upstream(t *testing.T) *lab.Lab {
	t.Helper()
	top := lab.Topology{
		Hosts: []lab.HostSpec{{Name: "client"}, {Name: "router", Forward: true},
			{Name: "reflector", Loopback: []string{"172.16.0.104/32", "172.16.0.105/32", "172.16.0.106/32", "172.16.0.107/32"}}},
		Switches: []lab.SwitchSpec{{Name: "nodenet"}},
		Links: []lab.Link{
			{A: lab.At("client", "eth0", clientAddr.String()+"/24").Via("192.168.0.1", "default"), B: lab.At("router", "eth1", "192.168.0.1/24")},
			{A: lab.At("router", "eth0", "10.0.0.110/16", "fd00::110/64"), B: lab.Port("nodenet")},
			{A: lab.At("reflector", "eth0", "10.0.0.109/16", "fd00::109/64"), B: lab.Port("nodenet")},
		},
	}
	for n := 104; n <= 107; n++ {
		name := fmt.Sprintf("node-%d", n)
		top.Hosts = append(top.Hosts, lab.HostSpec{Name: name, Loopback: []string{service.Addr().String() + "/32"}})
		top.Links = append(top.Links, lab.Link{
			A: lab.At(name, "eth0", fmt.Sprintf("10.0.0.%d/16", n), fmt.Sprintf("fd00::%d/64", n)).Via("10.0.0.110", "192.168.0.0/24"),
			B: lab.Port("nodenet")})
	}
	l := labtest.Build(t, top)
	testkit.Do(t, l.Host("router").Namespace(), func() error {
		s, err := router.RouterSysctls(0)
		if err != nil {
			return err
		}
		return sysctl.SetAll(s)
	})
	return l
}

// shadow follows a daemon's routes with shadow routes, and records what a test sees of
// both.
type shadow struct {
	t     *testing.T
	l     *lab.Lab
	table *router.Table
	stop  func()
	d     *Daemon
}

func startShadow(t *testing.T, l *lab.Lab, d *Daemon, protocol uint8) *shadow {
	t.Helper()
	table, err := router.New(router.Config{Metric: router.DefaultShadowMetric, FirstID: 2 * router.DefaultFirstID, NetNS: l.Host("router").Namespace().FD()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- table.Follow(ctx, router.Shadow{Protocols: []uint8{protocol}}) }()
	stopped := false
	b := &shadow{t: t, l: l, table: table, d: d, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := table.Close(true); err != nil {
			t.Error(err)
		}
	}}
	t.Cleanup(b.stop)
	return b
}

// until waits for the daemon's route and ours to have these numbers of next hops, and
// returns how much later ours had them.
func (b *shadow) until(plain, ours int) (late time.Duration) {
	b.t.Helper()
	count := func() (p, o int) {
		routes, err := b.l.Host("router").Routes(netip.PrefixFrom(service.Addr(), 24).Masked())
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range routes {
			if metric, hops, _ := strings.Cut(r, ": "); metric == fmt.Sprint(router.DefaultShadowMetric) {
				o = len(strings.Fields(hops))
			} else {
				p = len(strings.Fields(hops))
			}
		}
		return p, o
	}
	var since time.Time
	for deadline := time.Now().Add(time.Minute); ; {
		p, o := count()
		if p == plain && since.IsZero() {
			since = time.Now()
		}
		if p == plain && o == ours {
			return time.Since(since)
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("daemon's route and ours have %d and %d next hops, want %d and %d: %s\n%s", p, o, plain, ours,
				kernelRoutes(b.l.Host("router").Netlink()), b.d.Log())
		}
	}
}

// TestShadowRoutes makes FRR's and BIRD's routes resilient: when one of four load balancers is
// removed, only its flows move, and when our process is gone packets use the daemon's own
// routes.
func TestShadowRoutes(t *testing.T) {
	for kind, how := range map[Kind]struct {
		path     string
		protocol uint8
	}{FRR: {"/usr/lib/frr/bgpd", 186}, BIRD: {"/usr/sbin/bird", 12}} {
		t.Run(string(kind), func(t *testing.T) {
			if _, err := os.Stat(how.path); err != nil {
				t.Skipf("%s is not installed", kind)
			}
			l := upstream(t)
			speakers := enact(t, l.Host("reflector"), part{Nodes: "104,105,106,107"})
			c := example()
			c.Peers = c.Peers[:1]
			d, err := Start(l.Host("router").Namespace(), kind, c)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { d.Stop() }()
			b := startShadow(t, l, d, how.protocol)
			b.until(4, 4)
			flowstest.Answer(t, l, service, "node-104", "node-105", "node-106", "node-107")
			f := flowstest.Open(t, l, "client", clientAddr, service, 200)
			four := flowstest.Ask(t, f)
			last := func(o string, hops int) {
				t.Helper()
				speakers.Send(order{Last: o})
				t.Logf("%s one: ours follows within %s of the daemon's route", o, b.until(hops, hops))
			}
			last("withdraw", 3)
			three := flowstest.Ask(t, f)
			if moved, had := flows.Moved(four, three), flows.Shares(four)["node-107"]; len(moved) != 1 || moved["node-107"] != had {
				t.Errorf("node-107 had %d of %v flows; moved: %v", had, flows.Shares(four), moved)
			}
			last("announce", 4)
			last("withdraw", 3)
			last("announce", 4)
			four = flowstest.Ask(t, f)
			if moved, err := f.During(four, b.stop); err != nil || f.Lost > 0 {
				t.Errorf("when our process ended, %d of %d datagrams were lost (%d moved), error %v", f.Lost, f.Sent, moved, err)
			}
			b.until(4, 0)
			flowstest.Ask(t, f)
			again := startShadow(t, l, d, how.protocol)
			again.until(4, 4)
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
			again.until(0, 0)
			if d, err = Start(l.Host("router").Namespace(), kind, c); err != nil {
				t.Fatal(err)
			}
			again.d = d
			again.until(4, 4)
			flowstest.Ask(t, f)
		})
	}
}
