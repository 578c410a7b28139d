package sim

import (
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/sim/stochastic"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// atTimes is a load with requests at the given times in nanoseconds.
func atTimes(all ...int) traffic.Load {
	var trace []traffic.Record
	for _, at := range all {
		trace = append(trace, traffic.Record{At: float64(at) / 1e9})
	}
	return traffic.Replay(trace)
}

// star has clients and a server on one switch with 1 Gbit/s and 1 us cables. A packet of
// 500 bytes is 526 bytes on the wire (preamble, header, checksum), 4,208 ns, and 538
// bytes with the gap, 4,304 ns. It arrives at the switch 5,208 ns after it was sent, and
// at the server the same time after it was forwarded.
func star(t *testing.T, queue int, loads ...traffic.Load) (n *Net[Nanoseconds], server Node, clients []Node) {
	t.Helper()
	n = New[Nanoseconds](Config{})
	server = n.Server(Server{Name: "server"})
	ports := []Port{{server, 1e9, queue}}
	for _, l := range loads {
		c := n.Client(Client{Name: "client", To: server, Load: l})
		clients = append(clients, c)
		ports = append(ports, Port{c, 1e9, 0})
	}
	n.SwitchedLAN("switch", 1e-6, ports)
	return n, server, clients
}

// gets checks that a node receives the given number of packets at a time, and not before.
func gets(t *testing.T, n *Net[Nanoseconds], node Node, at Nanoseconds, count uint64) {
	t.Helper()
	for _, c := range []struct {
		end  Nanoseconds
		want uint64
	}{{at, count - 1}, {at + 1, count}} {
		if err := n.Run(float64(c.end) / 1e9); err != nil {
			t.Fatal(err)
		}
		if got := n.At(node).Got; got != c.want {
			t.Fatalf("%s has %d packets before %d ns, want %d", n.Name(node), got, c.end, c.want)
		}
	}
}

func TestSwitchStoresAndForwards(t *testing.T) {
	n, server, clients := star(t, 0, atTimes(0, 0))
	gets(t, n, server, 10416, 1)
	gets(t, n, server, 10416+4304, 2)
	gets(t, n, clients[0], 20832, 1)
}

// TestSwitchIsFullDuplex: a reply and a request pass each other on one cable, and
// requests of two clients only wait for each other where they meet.
func TestSwitchIsFullDuplex(t *testing.T) {
	n, server, clients := star(t, 0, atTimes(0), atTimes(0, 10000))
	gets(t, n, server, 10416, 1)
	gets(t, n, server, 10416+4304, 2)
	gets(t, n, server, 10416+10000, 3)
	gets(t, n, clients[0], 20832, 1)
}

// TestSwitchDropsWhenPortQueueIsFull: of four simultaneous packets, one is being sent,
// one waits, because the limit is 2, and two are dropped.
func TestSwitchDropsWhenPortQueueIsFull(t *testing.T) {
	n, server, _ := star(t, 2, atTimes(0), atTimes(0), atTimes(0), atTimes(0))
	if err := n.Run(1); err != nil {
		t.Fatal(err)
	}
	if got, lost := n.At(server).Got, n.At(server+5); got != 2 || lost.Dropped != 2 {
		t.Errorf("%d came, the switch has %+v, want 2 and 2 dropped", got, lost)
	}
}

// TestSmallPacketsArePadded: a packet of 10 bytes is 72 bytes on the wire, 576 ns.
func TestSmallPacketsArePadded(t *testing.T) {
	n := New[Nanoseconds](Config{PacketBytes: 10})
	server := n.Server(Server{Name: "server"})
	c := n.Client(Client{Name: "client", To: server, Load: atTimes(0)})
	n.SwitchedLAN("switch", 0, []Port{{server, 1e9, 0}, {c, 1e9, 0}})
	gets(t, n, server, 2*576, 1)
}

// TestProcessingDelay: a load balancer with two cores needs 10 us per packet, and
// lets one wait.
func TestProcessingDelay(t *testing.T) {
	n := New[Nanoseconds](Config{})
	web := n.Server(Server{Name: "web"})
	lb, err := n.Balancer(Balancer{Name: "lb", Method: service.DR, Scheduler: service.RoundRobin, Servers: []Weighted{{Node: web}}})
	if err != nil {
		t.Fatal(err)
	}
	n.Processor(lb, Processor{Cores: 2, Takes: stochastic.Always(10e-6), Queue: 1})
	n.Link(lb, web, 1e15, 0, 0)
	for range 4 {
		n.Link(n.Client(Client{Name: "client", To: lb, Load: atTimes(0)}), lb, 1e15, 0, 0)
	}
	for i, want := range []uint64{0, 2, 2, 3} { // before and after 10 us, before and after 20 us
		if err := n.Run(float64(10000*(1+i/2)+i%2) / 1e9); err != nil {
			t.Fatal(err)
		}
		if got := n.At(web).Got; got != want {
			t.Errorf("moment %d: %d packets came, want %d", i, got, want)
		}
	}
	if c := n.At(lb); c.Dropped != 1 {
		t.Errorf("the balancer has %+v, want 1 dropped", c)
	}
}
