package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/lab/testkit"
)

// portOf returns the source port that fullnat gives a flow if none is in use: from
// flow_tag (bpf/balancer/flow.h) with the data plane's key.
func portOf(t *testing.T, d *DataPlane, in packet) uint16 { return triedPorts(t, d, in)[0] }

// triedPorts are all ports that are tried, if there are more.
func triedPorts(t *testing.T, d *DataPlane, in packet) (all [64]uint16) {
	t.Helper()
	var secret bpf.BalancerFlowSecret
	must(t, d.kernel.FlowSecret.Lookup(uint32(0), &secret))
	src, dst := netip.MustParseAddrPort(in.src), netip.MustParseAddrPort(in.dst)
	v6, last := src.Addr().Is6(), uint64(unix.IPPROTO_TCP)
	if in.udp {
		last = unix.IPPROTO_UDP
	}
	words := func(a netip.Addr) []uint32 {
		w := entry.ToAddr(a).Word
		if !v6 {
			return []uint32{w[3], 0, 0, 0}
		}
		return []uint32{w[3], w[0], w[1], w[2]}
	}
	if v6 {
		last |= 0x100
	}
	var h uint64
	for i, word := range append(words(src.Addr()), words(dst.Addr())...) {
		h += secret.K[i] * uint64(word)
	}
	h += secret.K[8]*uint64(uint32(netorder.Port(src.Port()))<<16|uint32(netorder.Port(dst.Port()))) + secret.K[9]*last
	for range 2 {
		h ^= h >> 32
		h *= 0xd6e8feb86659fd93
	}
	h ^= h >> 32
	ports := d.config.Ports
	for i := range all {
		x := uint32(h>>32) + uint32(i)
		if i > 0 {
			x = (x ^ x>>16) * 0x85ebca6b
			x = (x ^ x>>13) * 0xc2b2ae35
			x ^= x >> 16
		}
		all[i] = ports.First + uint16(uint64(x)*(uint64(ports.Last)-uint64(ports.First)+1)>>32)
	}
	return all
}

// forth is the packet as it must reach the backend.
func forth(own string, port uint16, server string) func(*packet) {
	return func(p *packet) {
		p.src, p.dst = netip.AddrPortFrom(netip.MustParseAddr(own), port).String(), server
		sent(p)
	}
}

func TestFullNAT(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	for _, v6 := range []bool{false, true} {
		both(t, d, frontend(service.FullNAT, vips[v6], 0, servers[v6]))
		for name, in := range inKinds(v6) {
			name = fmt.Sprintf("%s, v6 %v", name, v6)
			port := portOf(t, d, in)
			row{name: name, in: in, verdict: redirect, out: forth(owns[v6], port, servers[v6])}.check(t, n, d)
			row{name: name + ", again", in: in, verdict: redirect, out: forth(owns[v6], port, servers[v6])}.check(t, n, d)
			answer := in
			answer.src, answer.dst = servers[v6], netip.AddrPortFrom(netip.MustParseAddr(owns[v6]), port).String()
			row{name: name + ", answer", in: answer, verdict: redirect, out: func(p *packet) {
				p.src, p.dst = vips[v6], clients[v6]
				sent(p)
			}}.check(t, n, d)
			answer.ttl = 1
			row{name: name + ", answer from too far", in: answer, verdict: drop, drop: "ttl-expired"}.check(t, n, d)
			answer.ttl, answer.src = 0, netip.AddrPortFrom(netip.MustParseAddr(addrOf(servers[v6])), 9).String()
			row{name: name + ", no answer", in: answer, verdict: pass}.check(t, n, d)
		}
	}
}

func TestFullNATRefusesMartians(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.FullNAT, vips[false], service.UDP, servers[false]))
	upsert(t, d, frontend(service.FullNAT, vips[true], service.UDP, servers[true]))
	for _, src := range []string{"0.1.2.3:5", "127.0.0.1:5", "224.0.0.1:5", "255.255.255.255:5", "[::]:5", "[::1]:5", "[ff02::1]:5"} {
		dst := vips[netip.MustParseAddrPort(src).Addr().Is6()]
		row{name: src, in: packet{src: src, dst: dst, udp: true}, verdict: drop, drop: "martian-source"}.check(t, n, d)
	}
}

// flowEntry finds a flow's entry.
func flowEntry(t testing.TB, d *DataPlane, client, vip string, protocol service.Protocol) (at *uint64, w flowtable.Word) {
	t.Helper()
	c, v := netip.MustParseAddrPort(client), netip.MustParseAddrPort(vip)
	for i := range d.flows.Sets {
		for j := range d.flows.Sets[i].Way {
			e, data := &d.flows.Sets[i].Way[j], d.flows.Data[i*flowtable.Ways+j]
			if e.Tag != 0 && flowtable.Word(e.Word).IsFlow() && data.Client == entry.ToAddr(c.Addr()) && data.Vip == entry.ToAddr(v.Addr()) &&
				data.ClientPort == netorder.Port(c.Port()) && data.VipPort == netorder.Port(v.Port()) && data.Egress>>24 == uint32(protocol) {
				return &e.Word, flowtable.Word(atomic.LoadUint64(&e.Word))
			}
		}
	}
	t.Fatalf("no flow of %s to %s", client, vip)
	return nil, 0
}

// expire makes an entry expired.
func expire(t testing.TB, d *DataPlane, client, vip string, protocol service.Protocol) {
	t.Helper()
	at, w := flowEntry(t, d, client, vip, protocol)
	atomic.StoreUint64(at, uint64(w)&(1<<32-1)|uint64(flowtable.Now())<<32)
	clear(d.flows.Recent)
}

// A client that retries gets the last free port, wherever its search begins: after failed
// searches fewer ports are tried, but different ones each time.
func TestFullNATFindsTheLastFreePort(t *testing.T) {
	n := newNet(t)
	const ports = 256
	d := n.openPorts(t, config(), ports)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	free := expirePort(t, d, n.fillPorts(t, d, vips[false], ports)[0])
	last := packet{dst: vips[false], flags: "S"}
	for i := 1024; last.src == ""; i++ { // a full search ends before the free one
		in := packet{src: fmt.Sprintf("192.168.200.2:%d", i), dst: vips[false], flags: "S"}
		if tried := triedPorts(t, d, in); !slices.Contains(tried[:], free) {
			last = in
		}
	}
	const searches = 16 // one of so many SYNs tries a port
	testkit.Do(t, n.balancer, func() error {
		for range 50 * ports * searches {
			if n.opens(t, d, last) {
				return nil
			}
		}
		t.Errorf("no port was found for %s: %v", last.src, d.Describe().Drops)
		return nil
	})
}

// expirePort expires the flow that a packet has opened, and returns its port.
func expirePort(t *testing.T, d *DataPlane, in packet) uint16 {
	t.Helper()
	client := netip.MustParseAddrPort(in.src)
	for f, err := range d.EachFlow(dataplane.FlowQuery{Client: client}) {
		must(t, err)
		expire(t, d, in.src, in.dst, service.TCP)
		return f.Source.Port()
	}
	t.Fatalf("no flow of %s", in.src)
	return 0
}

// Replies of a removed frontend's backend belong to no flow: another VIP may have the
// client's port.
func TestNATAnswersOfWhatIsGone(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	was := frontend(service.NAT, vips[false], service.TCP, servers[false])
	upsert(t, d, was)
	in := packet{src: clientOf(1), dst: vips[false], flags: "S"}
	if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
		t.Fatalf("%v, %v", v, d.Describe().Drops)
	}
	must(t, d.Delete(was.Key))
	in.dst = "10.1.1.1:81"
	upsert(t, d, frontend(service.NAT, in.dst, service.TCP, servers[false]))
	if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
		t.Errorf("the client's port by another VIP: %v, %v", v, d.Describe().Drops)
	}
}

// Two flows that hash to one port get different ones. If all are in use, the next flow is
// rejected until one has expired.
func TestFullNATPorts(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Ports = PortRange{20000, 20001}
	d := n.open(t, c)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	// Three clients that hash to port 20000.
	var ins []packet
	for port := 1024; len(ins) < 3; port++ {
		in := packet{src: fmt.Sprintf("192.168.0.2:%d", port), dst: vips[false], flags: "S"}
		if portOf(t, d, in) == 20000 {
			ins = append(ins, in)
		}
	}
	to := func(port uint16) func(*packet) { return forth(owns[false], port, servers[false]) }
	row{name: "first", in: ins[0], verdict: redirect, out: to(20000)}.check(t, n, d)
	row{name: "second", in: ins[1], verdict: redirect, out: to(20001)}.check(t, n, d)
	row{name: "third", in: ins[2], verdict: drop, drop: "no-port"}.check(t, n, d)

	expire(t, d, ins[0].src, vips[false], service.TCP)
	row{name: "the first has expired", in: ins[2], verdict: redirect, out: to(20000)}.check(t, n, d)
	row{name: "it is back", in: ins[0], verdict: drop, drop: "no-port"}.check(t, n, d)
	row{name: "the second is still there", in: ins[1], verdict: redirect, out: to(20001)}.check(t, n, d)
	answer := packet{src: servers[false], dst: "172.16.0.2:20000", flags: "SA"}
	row{name: "answers go to the new owner", in: answer, verdict: redirect, out: func(p *packet) {
		p.src, p.dst = vips[false], ins[2].src
		sent(p)
	}}.check(t, n, d)
	// To another backend the same ports are free.
	upsert(t, d, frontend(service.FullNAT, "10.1.1.1:81", service.TCP, "172.16.5.2:8080"))
	other := ins[0]
	other.dst = "10.1.1.1:81"
	port := portOf(t, d, other)
	row{name: "another server", in: other, verdict: redirect, out: forth(owns[false], port, "172.16.5.2:8080")}.check(t, n, d)
}

// An entry's timeout follows the connection, seen from both sides.
func TestFullNATLives(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	both(t, d, frontend(service.FullNAT, vips[false], 0, servers[false]))
	in := packet{src: clients[false], dst: vips[false]}
	back := packet{src: servers[false], dst: fmt.Sprintf("172.16.0.2:%d", portOf(t, d, in))}
	for _, step := range []struct {
		from  *packet
		flags string
		state bpf.BalancerFlowState
		lives time.Duration
	}{
		{&in, "S", bpf.BalancerFlowStateFLOW_OPENING, time.Minute},
		{&back, "SA", bpf.BalancerFlowStateFLOW_ANSWERED, time.Minute},
		{&in, "A", bpf.BalancerFlowStateFLOW_ESTABLISHED, 15 * time.Minute},
		{&back, "A", bpf.BalancerFlowStateFLOW_ESTABLISHED, 15 * time.Minute},
		{&back, "FA", bpf.BalancerFlowStateFLOW_SERVER_FIN, 2 * time.Minute},
		{&in, "A", bpf.BalancerFlowStateFLOW_SERVER_FIN, 2 * time.Minute},
		{&back, "R", bpf.BalancerFlowStateFLOW_CLOSED, 10 * time.Second},
	} {
		checkLife(t, n, d, *step.from, step.flags, in, service.TCP, step.state, step.lives)
		if got, ended := d.flows.Connections[1], step.lives <= 2*time.Minute && step.lives != time.Minute; ended != (got == flowtable.Ended) || !ended && got != flowtable.Active {
			t.Errorf("after %s from %s the server's connections are %v", step.flags, step.from.src, flowtable.Halves(got))
		}
	}
	// The client's port is reused: another flow, with its own port.
	in.flags = "S"
	_, out := n.run(t, d, in.bytes(t))
	tcp := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
	back.dst = fmt.Sprintf("172.16.0.2:%d", tcp.SrcPort)
	checkLife(t, n, d, back, "SA", in, service.TCP, bpf.BalancerFlowStateFLOW_ANSWERED, time.Minute)
	checkLife(t, n, d, in, "A", in, service.TCP, bpf.BalancerFlowStateFLOW_ESTABLISHED, 15*time.Minute)
	in.udp, back.udp = true, true
	checkLife(t, n, d, in, "", in, service.UDP, bpf.BalancerFlowStateFLOW_UDP_OPENING, 5*time.Minute)
	checkLife(t, n, d, in, "", in, service.UDP, bpf.BalancerFlowStateFLOW_UDP_OPENING, 5*time.Minute)
	back.dst = fmt.Sprintf("172.16.0.2:%d", portOf(t, d, in))
	checkLife(t, n, d, back, "", in, service.UDP, bpf.BalancerFlowStateFLOW_UDP, 5*time.Minute)
}

// checkLife sends a packet and checks its flow. in is the client's side.
func checkLife(t *testing.T, n *testNet, d *DataPlane, p packet, flags string, in packet, protocol service.Protocol, state bpf.BalancerFlowState, lives time.Duration) {
	t.Helper()
	p.flags = flags
	if v, _ := n.run(t, d, p.bytes(t)); v != redirect {
		t.Fatalf("%s from %s: %v", flags, p.src, v)
	}
	_, w := flowEntry(t, d, in.src, in.dst, protocol)
	left := time.Duration(w.Expires()-flowtable.Now()) << flowtable.TickShift
	if w.State() != uint32(state) || left > lives+2*time.Second || left < lives-30*time.Second {
		t.Errorf("after %s from %s: state %d for %s more, want %d for %s", flags, p.src, w.State(), left, state, lives)
	}
}

// A removed backend receives nothing more, although its number may have been reassigned.
// Its replies belong to no flow.
func TestFullNATForgetsRemovedServers(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	f := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	in := packet{src: clients[false], dst: vips[false], flags: "S"}
	port := portOf(t, d, in)
	row{name: "before", in: in, verdict: redirect, out: forth(owns[false], port, servers[false])}.check(t, n, d)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, "172.16.5.7:80"))
	upsert(t, d, frontend(service.FullNAT, "10.1.1.9:80", service.TCP, "172.16.5.8:80"))
	row{name: "after", in: in, verdict: redirect, out: forth(owns[false], port, "172.16.5.7:80")}.check(t, n, d)
	answer := packet{src: servers[false], dst: fmt.Sprintf("172.16.0.2:%d", port)}
	row{name: "its late answer", in: answer, verdict: pass}.check(t, n, d)
}

// A flow tracked by rr for a tunnel has no port. fullnat assigns one, and the backend
// stays.
func TestFullNATAfterRoundRobin(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	f := frontend(service.Tunnel, vips[false], service.TCP, servers[false], "172.16.5.2:80")
	f.Scheduler = service.RoundRobin
	upsert(t, d, f)
	in := packet{src: clients[false], dst: vips[false], flags: "S"}
	_, out := n.run(t, d, in.bytes(t))
	ip := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	server := servers[false]
	if ip.DstIP.String() == "172.16.5.2" {
		server = "172.16.5.2:80"
	}
	f.Method = service.FullNAT
	upsert(t, d, f)
	in.flags = "A"
	row{name: "fullnat", in: in, verdict: redirect, out: forth(owns[false], portOf(t, d, in), server)}.check(t, n, d)
	row{name: "again", in: in, verdict: redirect, out: forth(owns[false], portOf(t, d, in), server)}.check(t, n, d)
}

// With more flows than the table holds, those that are only opening are evicted, and no
// packet is lost.
func TestFlowTableOverflows(t *testing.T) {
	n := newNet(t)
	c := config()
	c.MaxFlows = 256
	d := n.open(t, c)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	for i := range 4 * c.MaxFlows {
		in := packet{src: fmt.Sprintf("192.168.1.2:%d", 1024+i), dst: vips[false], flags: "S"}
		if v, _ := n.run(t, d, in.bytes(t)); v != redirect {
			t.Fatalf("flow %d: %v, %v", i, v, d.Describe().Drops)
		}
	}
	all, err := allFlows(d)
	must(t, err)
	if len(all) > c.MaxFlows || len(all) < c.MaxFlows/2 {
		t.Errorf("%d entries in a table of %d", len(all), c.MaxFlows)
	}
}
