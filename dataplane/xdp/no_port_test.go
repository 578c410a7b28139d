package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/testkit"
)

// openPorts opens the data plane with so many source ports for fullnat, and stops its
// sweeper.
func (n *testNet) openPorts(t *testing.T, c Config, ports uint16) *DataPlane {
	t.Helper()
	c.Ports = PortRange{20000, 20000 + ports - 1}
	d := n.open(t, c)
	d.sweeper.close()
	return d
}

// opens reports whether a packet is forwarded. It works in the load balancer's namespace.
func (n *testNet) opens(t *testing.T, d *DataPlane, in packet) bool {
	t.Helper()
	v, _, err := n.runHere(d, in.bytes(t))
	must(t, err)
	return v == redirect
}

// fillPorts opens as many flows as a backend has ports, and returns their packets.
func (n *testNet) fillPorts(t *testing.T, d *DataPlane, vip string, ports int) (open []packet) {
	t.Helper()
	testkit.Do(t, n.balancer, func() error {
		for i := 0; len(open) < ports && i < 1000*ports; i++ {
			in := packet{src: fmt.Sprintf("192.168.%d.2:%d", i%100, 1024+i/100), dst: vip, flags: "S"}
			if n.opens(t, d, in) {
				open = append(open, in)
			}
		}
		return nil
	})
	if len(open) < ports {
		t.Fatalf("%d flows have a port", len(open))
	}
	return open
}

// flood sends SYNs of clients in 198.18.0.0/16, none of which may get a port.
func (n *testNet) flood(t *testing.T, d *DataPlane, vip string, clients int) {
	t.Helper()
	for i := range clients {
		in := packet{src: fmt.Sprintf("198.18.%d.%d:4242", i>>8, i&255), dst: vip, flags: "S"}
		if n.opens(t, d, in) {
			t.Fatalf("client %d has a port", i)
		}
	}
}

// Once no port is free, most new flows are rejected without an attempt, so that a flood
// does not replace the tables in the CPU's caches.
func TestFloodWithoutFreePortsTouchesNoTable(t *testing.T) {
	n := newNet(t)
	const ports, clients = 256, 4096
	d := n.openPorts(t, config(), ports)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	n.fillPorts(t, d, vips[false], ports)
	before, began := dropsOf(d, "no-port"), time.Now()
	testkit.Do(t, n.balancer, func() error {
		n.flood(t, d, vips[false], clients)
		return nil
	})
	ticks := int(time.Since(began).Milliseconds()) + 1 // at most
	if dropped := dropsOf(d, "no-port") - before; dropped != clients {
		t.Errorf("%d of %d clients were rejected with no-port: %v", dropped, clients, d.Describe().Drops)
	}
	written := 0 // entries that an attempt has written
	for i := range d.flows.Data {
		if a := entry.FromAddr(d.flows.Data[i].Client); netip.MustParsePrefix("198.18.0.0/16").Contains(a) {
			written++
		}
	}
	if most := clients/8 + ticks; written > most {
		t.Errorf("%d of %d rejected flows wrote to the table in at most %d ticks, want at most %d", written, clients, ticks, most)
	}
}

// Meanwhile flows to other backends, and to other ports of a backend that has a port
// range, get ports.
func TestFloodLeavesOtherPortsAlone(t *testing.T) {
	n := newNet(t)
	const ports, others = 256, 130 // some backends share memory with the first
	c := config()
	c.MaxFrontends = 256
	d := n.openPorts(t, c, ports)
	f := frontend(service.FullNAT, "10.1.1.1:8000", service.TCP, "172.16.6.1:0")
	f.Last = 8999
	upsert(t, d, f)
	for i := range others {
		upsert(t, d, frontend(service.FullNAT, fmt.Sprintf("10.1.1.2:%d", 1+i), service.TCP, fmt.Sprintf("172.16.7.%d:80", 1+i)))
	}
	n.fillPorts(t, d, "10.1.1.1:8000", ports)
	testkit.Do(t, n.balancer, func() error {
		for i := range others {
			for _, dst := range []string{fmt.Sprintf("10.1.1.2:%d", 1+i), fmt.Sprintf("10.1.1.1:%d", 8001+i)} {
				n.flood(t, d, "10.1.1.1:8000", 50)
				if !n.opens(t, d, packet{src: "192.0.2.1:1024", dst: dst, flags: "S"}) {
					t.Errorf("no port for a flow to %s: %v", dst, d.Describe().Drops)
				}
			}
		}
		return nil
	})
}

// A first fragment without a free port leaves no entry for the others, which are dropped
// for the same reason.
func TestFragmentsWithoutFreePort(t *testing.T) {
	n := newNet(t)
	d := n.openPorts(t, config(), 1)
	upsert(t, d, frontend(service.FullNAT, vips[false], service.UDP, servers[false]))
	in := packet{src: "192.0.2.1:1024", dst: vips[false], udp: true, payload: 200}
	send := func(frames [][]byte) (verdicts []verdict) {
		testkit.Do(t, n.balancer, func() error {
			return cputime.Pinned(func() error {
				for _, frame := range frames {
					v, _, err := n.runHere(d, frame)
					must(t, err)
					verdicts = append(verdicts, v)
				}
				return nil
			})
		})
		return verdicts
	}
	remembered := func() (found int) {
		var k bpf.BalancerFragmentKey
		var f bpf.BalancerFragment
		for it := d.kernel.Fragments.Iterate(); it.Next(&k, &f); found++ {
		}
		return found
	}
	if got := send(fragments(in.bytes(t), 1, 64)); slices.ContainsFunc(got, func(v verdict) bool { return v != redirect }) || remembered() != 1 {
		t.Errorf("with a port: %v, %d datagrams are remembered, drops %v", got, remembered(), d.Describe().Drops)
	}
	in.src = "192.0.2.2:1024"
	frames := fragments(in.bytes(t), 2, 64)
	got := send(frames)
	if slices.ContainsFunc(got, func(v verdict) bool { return v != drop }) || dropsOf(d, "no-port") != uint64(len(frames)) || remembered() != 1 {
		t.Errorf("without: %v, %d datagrams are remembered, drops %v", got, remembered(), d.Describe().Drops)
	}
}
