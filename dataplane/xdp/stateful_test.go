package xdp

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/lab/testkit"
)

// stateful returns a TCP tunnel frontend with flow tracking.
func stateful(scheduler service.Scheduler, backends int) desired.Frontend {
	var servers []string
	for i := range backends {
		servers = append(servers, fmt.Sprintf("172.16.5.%d:8080", i+1))
	}
	f := frontend(service.Tunnel, vips[false], service.TCP, servers...)
	f.Scheduler, f.Survival = scheduler, service.FlowTable
	return f
}

// clientOf returns one of many clients, each with its own port.
func clientOf(i int) string {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 14), 2}), uint16(1024+i%16384)).String()
}

// server sends a packet and returns the address that the frame went to, invalid if it was
// not sent. It works in the load balancer's namespace.
func (n *testNet) server(d *DataPlane, frame []byte) (netip.Addr, error) {
	v, out, err := n.runHere(d, frame)
	if err != nil || v != redirect {
		return netip.Addr{}, err
	}
	a, _ := netip.AddrFromSlice(out[14+16 : 14+20])
	return a, nil
}

// opened opens flows and establishes them. It returns their backends.
func opened(t *testing.T, n *testNet, d *DataPlane, vip string, count int) (all []netip.Addr) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		for i := range count {
			s, err := n.server(d, packet{src: clientOf(i), dst: vip, flags: "S"}.bytes(t))
			must(t, err)
			all = append(all, s)
			if again, err := n.server(d, packet{src: clientOf(i), dst: vip, flags: "A"}.bytes(t)); err != nil || again != s {
				t.Fatalf("flow %d was opened on %v and goes to %v: %v, %v", i, s, again, err, d.Describe().Drops)
			}
		}
		return nil
	})
	return all
}

// Established flows stay through a flood of ten times as many connections as the table
// holds.
func TestFloodLeavesEstablishedFlows(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 4096
	d := n.open(t, c)
	upsert(t, d, stateful(service.RoundRobin, 7))
	const flows = 1000
	before := opened(t, n, d, vips[false], flows)
	flood := packet{src: "10.9.0.1:1024", dst: vips[false], flags: "S"}.bytes(t)
	testkit.Do(t, n.balancer, func() error {
		for i := range 10 * c.MaxFlows {
			flood[14+14], flood[14+15], flood[14+21] = byte(i>>16), byte(i>>8), byte(i)
			if _, err := n.server(d, flood); err != nil {
				return err
			}
		}
		for i, want := range before {
			if got, err := n.server(d, packet{src: clientOf(i), dst: vips[false], flags: "A"}.bytes(t)); err != nil || got != want {
				t.Fatalf("flow %d was on %v and goes to %v: %v", i, want, got, err)
			}
		}
		return nil
	})
}

// No flow is evicted for a new one while its set has an entry that is free or whose flow
// is over.
func TestNoFlowIsEvictedWhileAPlaceIsFree(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = flowtable.Ways // one set
	d := n.open(t, c)
	upsert(t, d, stateful(service.RoundRobin, 7))
	for i := range 10 * flowtable.Ways {
		if i%flowtable.Ways == 0 {
			d.sweep(flowtable.Now() + 1000) // they are over
		}
		if v, _ := n.run(t, d, packet{src: clientOf(i), dst: vips[false], flags: "S"}.bytes(t)); v != redirect {
			t.Fatalf("flow %d: %v, %v", i, v, d.Describe().Drops)
		}
		if got, err := d.Remembered(); err != nil || got != i%flowtable.Ways+1 {
			t.Errorf("%d flows are remembered after %d have been opened: %v", got, i%flowtable.Ways+1, err)
		}
	}
	for id, got := range d.flows.Connections {
		if sum := flowtable.Halves(got); sum[0] < 0 || sum[1] < 0 || sum[0]+sum[1] > flowtable.Ways {
			t.Errorf("backend %d has %d active connections and %d ended ones", id, sum[0], sum[1])
		}
	}
}

// What the table lists, and the effect of a sweep.
func TestFlowsAreListedAndSwept(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := stateful(service.RoundRobin, 2)
	upsert(t, d, f)
	before := opened(t, n, d, vips[false], 4)
	n.run(t, d, packet{src: clientOf(9), dst: vips[false], flags: "S"}.bytes(t)) // opening, and not listed yet
	all, err := allFlows(d)
	must(t, err)
	if len(all) != 4 {
		t.Fatalf("%d flows are listed", len(all))
	}
	for _, flow := range all {
		i := int(flow.Client.Port()) - 1024
		if flow.Client.String() != clientOf(i) || flow.VIP.String() != vips[false] || flow.Protocol != service.TCP ||
			flow.Server.Addr() != before[i] || flow.State != "established" || flow.Idle > 30*time.Second {
			t.Errorf("%+v, server %v", flow, before[i])
		}
	}
	conns := func() (sum uint64) {
		for _, c := range d.flows.Connections {
			sum += c
		}
		return sum / flowtable.Active
	}
	if got := conns(); got != 5 {
		t.Errorf("%d connections are counted, want 5", got)
	}
	expire(t, d, clientOf(0), vips[false], service.TCP)
	d.flows.Connections[1] += 1000*flowtable.Active + 500 // as if updates had been lost
	d.sweep(flowtable.Now())
	d.sweep(flowtable.Now())
	if all, err = allFlows(d); err != nil || len(all) != 3 || conns() != 4 {
		t.Errorf("after one has expired: %d flows, %d connections, %v", len(all), conns(), err)
	}
	// A removed server's flows are removed too.
	f.Backends = f.Backends[:1]
	upsert(t, d, f)
	all, err = allFlows(d)
	must(t, err)
	for _, flow := range all {
		if flow.Server != f.Backends[0].Addr {
			t.Errorf("%+v is listed, whose server is gone", flow)
		}
	}
}

// Two CPUs that open the same flows concurrently give each one backend, and lose no
// packet.
func TestTwoCPUsOpenOneFlow(t *testing.T) {
	for _, method := range []service.Method{service.Tunnel, service.FullNAT} {
		t.Run(string(method), func(t *testing.T) { openTwice(t, method) })
	}
}

func openTwice(t *testing.T, method service.Method) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 1 << 20 // no set of the table is full, so none evicts another
	d := n.open(t, c)
	f := stateful(service.RoundRobin, 7)
	f.Method = method
	upsert(t, d, f)
	const flows = 2000
	var frames [flows][]byte
	for i := range frames {
		frames[i] = packet{src: clientOf(i), dst: vips[false], flags: "S"}.bytes(t)
	}
	var went [2][flows]netip.Addr
	var both sync.WaitGroup
	for cpu := range went {
		both.Add(1)
		go func() {
			defer both.Done()
			testkit.Do(t, n.balancer, func() error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for i := range flows {
					s, err := n.server(d, frames[i])
					if err != nil {
						t.Error(err)
						return nil
					}
					went[cpu][i] = s
				}
				return nil
			})
		}()
	}
	both.Wait()
	lost := 0
	for i := range flows {
		a, b := went[0][i], went[1][i]
		switch {
		case !a.IsValid() || !b.IsValid():
			lost++ // the CPU was taken from the lock holder for long
		case a != b:
			t.Errorf("flow %d went to %v and to %v", i, a, b)
		}
	}
	if lost != int(d.Describe().Drops["flow-busy"]) || lost > flows/100 {
		t.Errorf("%d packets were lost: %v", lost, d.Describe().Drops)
	}
	if all, err := d.Remembered(); err != nil || all != flows {
		t.Errorf("%d flows are remembered, want %d: %v", all, flows, err)
	}
}

func countServers(all []netip.Addr) map[string]int {
	counts := map[string]int{}
	for _, a := range all {
		counts[a.String()]++
	}
	return counts
}

// Every scheduler fills all backends up to their limits and then has none.
func TestThresholds(t *testing.T) {
	for _, scheduler := range service.Schedulers {
		t.Run(string(scheduler), func(t *testing.T) {
			n := newNet(t)
			d := n.open(t, config())
			f := stateful(scheduler, 3)
			for i := range f.Backends {
				f.Backends[i].MaxConns = 10 + 5*uint32(i)
			}
			upsert(t, d, f)
			all := opened(t, n, d, vips[false], 45)
			counts := countServers(all)
			if counts["172.16.5.1"] != 10 || counts["172.16.5.2"] != 15 || counts["172.16.5.3"] != 20 {
				t.Errorf("%v", counts)
			}
			row{name: "one more", in: packet{src: clientOf(50), dst: vips[false], flags: "S"}, verdict: drop, drop: "full"}.check(t, n, d)
			n.run(t, d, packet{src: clientOf(7), dst: vips[false], flags: "R"}.bytes(t))
			expire(t, d, clientOf(7), vips[false], service.TCP)
			d.sweep(flowtable.Now())
			testkit.Do(t, n.balancer, func() error {
				s, err := n.server(d, packet{src: clientOf(50), dst: vips[false], flags: "S"}.bytes(t))
				if err != nil || s != all[7] {
					t.Errorf("a connection of %v has ended, but the next goes to %v: %v", all[7], s, err)
				}
				return nil
			})
		})
	}
}

// Flows are spread according to each scheduler.
func TestSchedulersSpread(t *testing.T) {
	const flows = 1200
	for scheduler, want := range map[service.Scheduler][3]int{
		service.Maglev: {200, 400, 600}, service.RoundRobin: {400, 400, 400}, service.WeightedRoundRobin: {200, 400, 600},
		service.LeastConn: {400, 400, 400}, service.WeightedLeastConn: {200, 400, 600}, service.PowerOfTwo: {200, 400, 600},
		service.SourceHash: {0, 0, 0}, service.DestinationHash: {0, 0, 0},
	} {
		t.Run(string(scheduler), func(t *testing.T) {
			n := newNet(t)
			d := n.open(t, config())
			f := stateful(scheduler, 4)
			for i := range f.Backends {
				f.Backends[i].Weight = uint32(i+1) % 4
			}
			upsert(t, d, f)
			counts := countServers(opened(t, n, d, vips[false], flows))
			if want == [3]int{} { // one client, one VIP: one backend
				if len(counts) != 1 {
					t.Errorf("%v", counts)
				}
				return
			}
			for i, w := range want {
				if got := counts[fmt.Sprintf("172.16.5.%d", i+1)]; got < w*85/100 || got > w*115/100 {
					t.Errorf("%v, want about %v", counts, want)
				}
			}
		})
	}
}

// The program takes the turns of wrr in the order of IPVS.
func TestWeightedRoundRobin(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := stateful(service.WeightedRoundRobin, 2)
	f.Backends[1].Weight = 3
	upsert(t, d, f)
	var got []byte
	for _, a := range opened(t, n, d, vips[false], 8) {
		got = append(got, '0'+a.As4()[3])
	}
	if string(got) != "22122212" {
		t.Errorf("flows go to %s, want 22122212", got)
	}
}

// A client's flows go to one backend until the affinity times out or the backend accepts
// no more.
func TestAffinity(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	f := stateful(service.RoundRobin, 3)
	f.Affinity = time.Minute
	upsert(t, d, f)
	all := opened(t, n, d, vips[false], 20)
	if counts := countServers(all); len(counts) != 1 {
		t.Fatalf("one client went to %v", counts)
	}
	open := func(src string) (s netip.Addr) {
		testkit.Do(t, n.balancer, func() (err error) {
			s, err = n.server(d, packet{src: src, dst: vips[false], flags: "S"}.bytes(t))
			return err
		})
		return s
	}
	seen := map[netip.Addr]bool{}
	for i := range 6 {
		seen[open(fmt.Sprintf("192.168.9.%d:1024", i+1))] = true
	}
	if len(seen) != 3 {
		t.Errorf("six clients have %d servers", len(seen))
	}
	for i, b := range f.Backends {
		if b.Addr.Addr() == all[0] {
			f.Backends[i].Weight = 0
		}
	}
	upsert(t, d, f)
	if s := open("192.168.0.2:9"); s == all[0] || !s.IsValid() {
		t.Errorf("a new flow goes to %v, which drains", s)
	}
	if s := open(clientOf(3)); s != all[0] {
		t.Errorf("an established flow goes to %v, not to %v, which drains", s, all[0])
	}
}

// nat changes the destination, and the source of its backends' replies.
func TestNAT(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(service.NAT, vips[v6], 0, servers[v6]))
		for name, in := range inKinds(v6) {
			name = fmt.Sprintf("%s, v6 %v", name, v6)
			to := func(p *packet) { p.dst = servers[v6]; sent(p) }
			row{name: name, in: in, verdict: redirect, out: to}.check(t, n, d)
			row{name: name + ", again", in: in, verdict: redirect, out: to}.check(t, n, d)
			answer := in
			answer.src, answer.dst = servers[v6], in.src
			row{name: name + ", answer", in: answer, verdict: redirect, out: func(p *packet) { p.src = vips[v6]; sent(p) }}.check(t, n, d)
			answer.dst = netip.AddrPortFrom(netip.MustParseAddr(addrOf(in.src)), 9).String()
			row{name: name + ", no answer", in: answer, verdict: pass}.check(t, n, d)
		}
	}
}

// portsOf reads the ports of a TCP packet.
func portsOf(t *testing.T, frame []byte) (src, dst uint16) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP: %v", p)
	}
	return uint16(tcp.SrcPort), uint16(tcp.DstPort)
}

// No two flows to one backend have the same port. Each flow gets one while a fifth of all
// ports is free, wherever those are.
func TestFullNATPortsAreDistinct(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Ports = PortRange{20000, 20499}
	d := n.open(t, c)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	seen := map[uint16]int{}
	for i := range 400 {
		v, out := n.run(t, d, packet{src: clientOf(i), dst: vips[false], flags: "S"}.bytes(t))
		if v != redirect {
			t.Fatalf("flow %d: %v, %v", i, v, d.Describe().Drops)
		}
		src, _ := portsOf(t, out)
		if old, taken := seen[src]; taken {
			t.Fatalf("flows %d and %d have port %d", old, i, src)
		}
		seen[src] = i
	}
}

// allFlows returns the tracked flows.
func allFlows(d *DataPlane) (all []dataplane.Flow, err error) {
	for f, err := range d.EachFlow(dataplane.FlowQuery{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
