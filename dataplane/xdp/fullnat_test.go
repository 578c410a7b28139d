package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

// portOf gives the source port that fullnat gives a flow when none is taken.
func portOf(c Config, in packet) uint16 {
	c = c.withDefaults()
	protocol := service.TCP
	if in.udp {
		protocol = service.UDP
	}
	dst := netip.MustParseAddrPort(in.dst)
	hash := schedule.Hash(schedule.Flow{
		Client: netip.MustParseAddrPort(in.src),
		Key:    service.Key{VIP: dst.Addr(), Port: dst.Port(), Protocol: protocol},
	})
	count := uint64(c.Ports.Last) - uint64(c.Ports.First) + 1
	return c.Ports.First + uint16(uint64(hash)*count>>32)
}

// forth is the packet as it must reach the server.
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
			port := portOf(c, in)
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

// flowEntry reads one direction's entry.
func flowEntry(t *testing.T, d *DataPlane, src, dst string, protocol service.Protocol) (key balancerTuple, fl balancerFlow) {
	t.Helper()
	s, e := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	key = balancerTuple{
		Src: toAddr(s.Addr()), Dst: toAddr(e.Addr()), Sport: netorder.Port(s.Port()), Dport: netorder.Port(e.Port()), Proto: uint8(protocol),
	}
	if err := d.kernel.Flows.Lookup(key, &fl); err != nil {
		t.Fatalf("flow %s to %s: %v", src, dst, err)
	}
	return key, fl
}

// expire makes an entry old.
func expire(t *testing.T, d *DataPlane, src, dst string, protocol service.Protocol) {
	t.Helper()
	key, fl := flowEntry(t, d, src, dst, protocol)
	fl.Expires = bootSeconds(t)
	must(t, d.kernel.Flows.Put(key, fl))
}

func bootSeconds(t *testing.T) uint32 {
	t.Helper()
	var ts unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts))
	return uint32(ts.Sec)
}

// Two flows whose hashes fall on one port get two; where all are taken the
// next flow is refused, until one has expired in both directions.
func TestFullNATPorts(t *testing.T) {
	n := newNet(t)
	c := config()
	c.Ports = PortRange{20000, 20001}
	d := n.open(t, c)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	// Three clients that would all have port 20000.
	var ins []packet
	for port := 1024; len(ins) < 3; port++ {
		in := packet{src: fmt.Sprintf("192.168.0.2:%d", port), dst: vips[false], flags: "S"}
		if portOf(c, in) == 20000 {
			ins = append(ins, in)
		}
	}
	to := func(port uint16) func(*packet) { return forth(owns[false], port, servers[false]) }
	row{name: "first", in: ins[0], verdict: redirect, out: to(20000)}.check(t, n, d)
	row{name: "second", in: ins[1], verdict: redirect, out: to(20001)}.check(t, n, d)
	row{name: "third", in: ins[2], verdict: drop, drop: "no-port"}.check(t, n, d)

	expire(t, d, servers[false], "172.16.0.2:20000", service.TCP)
	row{name: "expired in one direction only", in: ins[2], verdict: drop, drop: "no-port"}.check(t, n, d)
	expire(t, d, ins[0].src, vips[false], service.TCP)
	row{name: "expired in both", in: ins[2], verdict: redirect, out: to(20000)}.check(t, n, d)
	row{name: "its first owner is back", in: ins[0], verdict: drop, drop: "no-port"}.check(t, n, d)
	row{name: "the second is still there", in: ins[1], verdict: redirect, out: to(20001)}.check(t, n, d)
	answer := packet{src: servers[false], dst: "172.16.0.2:20000", flags: "SA"}
	row{name: "answers go to the new owner", in: answer, verdict: redirect, out: func(p *packet) {
		p.src, p.dst = vips[false], ins[2].src
		sent(p)
	}}.check(t, n, d)
}

// An entry that was evicted is made again, on the same port.
func TestFullNATEviction(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	in := packet{src: clients[false], dst: vips[false]}
	port := portOf(c, in)
	to := forth(owns[false], port, servers[false])
	row{name: "opens", in: in, verdict: redirect, out: to}.check(t, n, d)
	key, _ := flowEntry(t, d, in.src, in.dst, service.TCP)
	must(t, d.kernel.Flows.Delete(key))
	row{name: "forth was evicted", in: in, verdict: redirect, out: to}.check(t, n, d)
	row{name: "goes on", in: in, verdict: redirect, out: to}.check(t, n, d)
}

// How long an entry lives follows the connection, in both directions.
func TestFullNATLives(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	both(t, d, frontend(service.FullNAT, vips[false], 0, servers[false]))
	in := packet{src: clients[false], dst: vips[false]}
	own := fmt.Sprintf("172.16.0.2:%d", portOf(c, in))
	back := packet{src: servers[false], dst: own}
	for _, step := range []struct {
		from        *packet
		flags       string
		forth, back uint32 // seconds
	}{
		{&in, "S", 60, 60},
		{&back, "SA", 60, 60},
		{&in, "A", 7200, 60},
		{&back, "A", 7200, 7200},
		{&back, "FA", 60, 60},
		{&in, "A", 60, 60},
		{&in, "S", 60, 60}, // the port is used anew
		{&in, "A", 7200, 60},
		{&back, "PA", 7200, 7200},
		{&in, "R", 60, 60},
	} {
		p := *step.from
		p.flags = step.flags
		n.run(t, d, p.bytes(t))
		for _, e := range []struct {
			src, dst string
			want     uint32
		}{{in.src, in.dst, step.forth}, {back.src, back.dst, step.back}} {
			_, fl := flowEntry(t, d, e.src, e.dst, service.TCP)
			if left := fl.Expires - bootSeconds(t); left > e.want || left+30 < e.want {
				t.Errorf("after %s from %s: %s lives %d s more, want %d", step.flags, p.src, e.src, left, e.want)
			}
		}
	}
	in.udp = true
	n.run(t, d, in.bytes(t))
	if _, fl := flowEntry(t, d, in.src, in.dst, service.UDP); fl.Expires-bootSeconds(t) > 300 || fl.Expires-bootSeconds(t) < 270 {
		t.Errorf("a UDP flow lives %d s more", fl.Expires-bootSeconds(t))
	}
}

// A server that was removed gets nothing more, though its number may be
// another's by now; its own answers are no flow's.
func TestFullNATForgetsRemovedServers(t *testing.T) {
	n := newNet(t)
	c := config()
	d := n.open(t, c)
	f := frontend(service.FullNAT, vips[false], service.TCP, servers[false])
	upsert(t, d, f)
	in := packet{src: clients[false], dst: vips[false], flags: "S"}
	port := portOf(c, in)
	row{name: "before", in: in, verdict: redirect, out: forth(owns[false], port, servers[false])}.check(t, n, d)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, "172.16.5.7:80"))
	upsert(t, d, frontend(service.FullNAT, "10.1.1.9:80", service.TCP, "172.16.5.8:80"))
	row{name: "after", in: in, verdict: redirect, out: forth(owns[false], port, "172.16.5.7:80")}.check(t, n, d)
	answer := packet{src: servers[false], dst: fmt.Sprintf("172.16.0.2:%d", port)}
	row{name: "its late answer", in: answer, verdict: pass}.check(t, n, d)
}

// What rr has remembered for a tunnel has no port; fullnat gives it one, and
// the server stays.
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
	row{name: "fullnat", in: in, verdict: redirect, out: forth(owns[false], portOf(c, in), server)}.check(t, n, d)
	row{name: "again", in: in, verdict: redirect, out: forth(owns[false], portOf(c, in), server)}.check(t, n, d)
}

// More flows than the table holds: the oldest give way, no packet is lost.
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
	count, key, fl := 0, balancerTuple{}, balancerFlow{}
	entries := d.kernel.Flows.Iterate()
	for entries.Next(&key, &fl) {
		count++
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		t.Fatal(err)
	}
	if count > c.MaxFlows {
		t.Errorf("%d entries in a table of %d", count, c.MaxFlows)
	}
}
