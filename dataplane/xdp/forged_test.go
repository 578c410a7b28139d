package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/flowtable"
	"github.com/fairlead/fairlead/lab/testkit"
)

// A connection's initial numbers: the client's and the backend's.
const (
	clientISN = 0x10000000
	serverISN = 0x20000000
)

// tcpSegment is a segment of a connection, from either side, or a forged one from someone
// who knows addresses and ports, but no sequence numbers.
type tcpSegment struct {
	by    string // "client", "server" or "forger"
	flags string
	// sent and got are the bytes that this side has sent and received before.
	sent, got uint32
	payload   int
}

func (s tcpSegment) String() string { return s.by + " " + s.flags }

// connection is a connection through the load balancer, and its backend.
type connection struct {
	*testing.T
	net    *testNet
	d      *DataPlane
	client string
	vip    string
	sctp   bool
	v6     bool
	// back is the destination of the backend's replies, with nat and fullnat.
	server, back string
}

// send makes the load balancer forward a segment. For a client's it returns the backend
// it went to.
func (c *connection) send(s tcpSegment) netip.Addr {
	c.Helper()
	p := packet{src: c.client, dst: c.vip, flags: s.flags, sctp: c.sctp, payload: s.payload}
	switch {
	case s.by == "forger":
		p.seq, p.ack = 0x7a7a7a7a, 0x5b5b5b5b
	case s.by == "client" && s.flags == "S":
		p.seq = clientISN
	case s.by == "client":
		p.seq, p.ack = clientISN+1+s.sent, serverISN+1+s.got
	case s.by == "server":
		p.src, p.dst = c.server, c.back
		p.seq, p.ack = serverISN+1+s.sent, clientISN+1+s.got
	}
	if c.sctp {
		p.seq = map[string]uint32{"client": serverISN, "forger": 0x7a7a7a7a}[s.by]
	}
	v, out := c.net.run(c.T, c.d, p.bytes(c.T))
	if v != redirect {
		c.Fatalf("%v: %v, %v", s, v, c.d.Describe().Drops)
	}
	return dissect(out[14:]).dst
}

// all sends segments and returns the backend of the client's last one.
func (c *connection) all(segments ...tcpSegment) (server netip.Addr) {
	c.Helper()
	for _, s := range segments {
		if to := c.send(s); s.by != "server" {
			server = to
		}
	}
	return server
}

// idle ages the connection's flow by this many seconds without packets. The agent sweeps
// the table every ten seconds.
func (c *connection) idle(seconds uint32) {
	c.Helper()
	const step = 10
	entry, _ := c.entry()
	for ; seconds > 0; seconds -= step {
		atomic.StoreUint64(entry, atomic.LoadUint64(entry)-uint64(step*1e9>>flowtable.TickShift)<<32)
		clear(c.d.flows.Recent)
		c.d.sweep(flowtable.Now())
	}
}

func (c *connection) entry() (*uint64, flowtable.Word) {
	c.Helper()
	if c.sctp {
		return flowEntry(c.T, c.d, c.client, c.vip, service.SCTP)
	}
	return flowEntry(c.T, c.d, c.client, c.vip, service.TCP)
}

var (
	opening         = []tcpSegment{{by: "client", flags: "S"}, {by: "client", flags: "A"}, {by: "client", flags: "PA", payload: 100}}
	clientContinues = tcpSegment{by: "client", flags: "PA", sent: 100, payload: 100}
	forgedFIN       = tcpSegment{by: "forger", flags: "FA"}
	forgedRST       = tcpSegment{by: "forger", flags: "R"}
	forgedRSTA      = tcpSegment{by: "forger", flags: "RA"}
	forgedSYN       = tcpSegment{by: "forger", flags: "S"}
	forgedACK       = tcpSegment{by: "forger", flags: "A"}
	again           = tcpSegment{by: "client", flags: "S"}
	synack          = tcpSegment{by: "server", flags: "SA"}
	answer          = tcpSegment{by: "server", flags: "A", got: 100}
	clientFIN       = tcpSegment{by: "client", flags: "FA", sent: 100, got: 5000}
	serverFIN       = tcpSegment{by: "server", flags: "FA", sent: 5000, got: 101}
	serverRST       = tcpSegment{by: "server", flags: "R", sent: 5000}
	clientRST       = tcpSegment{by: "client", flags: "RA", sent: 100, got: 5000}
	finalACK        = tcpSegment{by: "client", flags: "A", sent: 101, got: 5001}
	distantFIN      = tcpSegment{by: "client", flags: "FA", sent: 1 << 28, got: 1 << 29}
)

// directReturn are the forwarding modes whose replies bypass the load balancer.
var directReturn = []service.Method{service.Tunnel, service.DSRNAT}

// world is a load balancer with seven backends, used round robin by new flows.
type world struct {
	net    *testNet
	d      *DataPlane
	method service.Method
	v6     bool
	opened uint16
}

// inEach runs a test in a world for each forwarding mode and family.
func inEach(t *testing.T, methods []service.Method, families []bool, test func(t *testing.T, w *world)) {
	for _, method := range methods {
		for _, v6 := range families {
			t.Run(fmt.Sprintf("%s, v6 %v", method, v6), func(t *testing.T) { test(t, newWorld(t, method, v6)) })
		}
	}
}

var eachFamily, onlyV4 = []bool{false, true}, []bool{false}

func newWorld(t *testing.T, method service.Method, v6 bool) *world {
	n := newNet(t)
	w := &world{net: n, d: n.open(t, config()), method: method, v6: v6}
	w.d.sweeper.close()
	upsert(t, w.d, w.frontend(service.TCP, 7))
	upsert(t, w.d, w.frontend(service.SCTP, 7))
	return w
}

// frontend has n backends, none with number 100.
func (w *world) frontend(protocol service.Protocol, n int) desired.Frontend {
	var all []string
	for i := range n {
		format := map[bool]string{false: "172.16.5.%d:8080", true: "[fd05::%d]:8080"}[w.v6]
		all = append(all, fmt.Sprintf(format, i+1))
	}
	f := frontend(w.method, vips[w.v6], protocol, all...)
	if protocol == service.SCTP {
		for i := range f.Backends { // its checksum covers the ports
			f.Backends[i].Addr = netip.AddrPortFrom(f.Backends[i].Addr.Addr(), f.Port)
		}
	}
	f.Scheduler, f.Survival = service.RoundRobin, service.FlowTable
	return f
}

// connect returns a connection of a new client.
func (w *world) connect(t *testing.T) *connection {
	w.opened++
	client := netip.MustParseAddr(map[bool]string{false: "192.168.77.2", true: "2001:db8:77::2"}[w.v6])
	return &connection{
		T: t, net: w.net, d: w.d, client: netip.AddrPortFrom(client, 1024+w.opened).String(), vip: vips[w.v6], v6: w.v6,
	}
}

// open opens it, and returns its backend.
func (c *connection) open(segments []tcpSegment) netip.Addr {
	c.Helper()
	p := packet{src: c.client, dst: c.vip, flags: segments[0].flags, seq: clientISN, sctp: c.sctp}
	_, out := c.net.run(c.T, c.d, p.bytes(c.T))
	a := dissect(out[14:])
	if !c.sctp {
		source, _ := portsOf(c.T, out)
		c.server, c.back = netip.AddrPortFrom(a.dst, 8080).String(), netip.AddrPortFrom(a.src, source).String()
	}
	if server := c.all(segments...); server != a.dst {
		c.Fatalf("it was opened on %v and goes to %v", a.dst, server)
	}
	return a.dst
}

// No segment forged in a client's name moves a live connection to another backend with
// direct server return: neither immediately, nor after long silence.
func TestForgedSegmentsMoveNoFlow(t *testing.T) {
	attacks := map[string][]tcpSegment{
		"RST":                {forgedRST},
		"RST, ACK":           {forgedRSTA},
		"FIN":                {forgedFIN},
		"SYN":                {forgedSYN},
		"RST, SYN":           {forgedRST, forgedSYN},
		"FIN, SYN":           {forgedFIN, forgedSYN},
		"SYN, ACK":           {forgedSYN, forgedACK},
		"FIN, RST, SYN":      {forgedFIN, forgedRST, forgedSYN},
		"SYN, ACK, FIN, SYN": {forgedSYN, forgedACK, forgedFIN, forgedSYN},
		"RST, FIN, SYN, SYN": {forgedRST, forgedFIN, forgedSYN, forgedSYN},
	}
	inEach(t, directReturn, eachFamily, func(t *testing.T, w *world) {
		for name, forged := range attacks {
			for _, idle := range []uint32{0, 30, 200, 600} {
				t.Run(fmt.Sprintf("%s, silent for %d s", name, idle), func(t *testing.T) {
					c := w.connect(t)
					was := c.open(opening)
					if to := c.all(forged...); to != was {
						t.Errorf("what is forged went to %v, not to %v", to, was)
					}
					c.idle(idle)
					if to := c.send(clientContinues); to != was {
						t.Errorf("the connection goes to %v, not to %v", to, was)
					}
					c.idle(idle)
					if to := c.all(forgedSYN, clientContinues); to != was {
						t.Errorf("after another SYN it goes to %v, not to %v", to, was)
					}
				})
			}
		}
	})
}

// A segment that ends nothing leaves the connection counted as active, once its client
// has sent more.
func TestForgedSegmentsChangeNoCount(t *testing.T) {
	methods := []service.Method{service.Tunnel, service.NAT, service.FullNAT}
	inEach(t, methods, onlyV4, func(t *testing.T, w *world) {
		for _, forged := range []tcpSegment{forgedRST, forgedRSTA, forgedFIN, forgedSYN} {
			t.Run(forged.String(), func(t *testing.T) {
				c := w.connect(t)
				c.open(opening)
				if w.method != service.Tunnel {
					c.all(synack, opening[1], answer)
				}
				before := slices.Clone(c.d.flows.Connections)
				c.all(forged, clientContinues)
				if !slices.Equal(before, c.d.flows.Connections) {
					t.Errorf("connections were %v and are %v", before, c.d.flows.Connections)
				}
				c.d.sweep(flowtable.Now())
				if !slices.Equal(before, c.d.flows.Connections) {
					t.Errorf("counted again, connections were %v and are %v", before, c.d.flows.Connections)
				}
			})
		}
	})
}

// A flood that evicts flows from a full table does not evict one because somebody has
// forged its end.
func TestForgedEndDoesNotExposeToFloods(t *testing.T) {
	w := newWorld(t, service.Tunnel, false)
	for _, forged := range []tcpSegment{forgedFIN, forgedRST} {
		c := w.connect(t)
		was := c.open(opening)
		c.send(forged)
		flood := packet{src: "10.9.0.1:1024", dst: c.vip, flags: "S"}.bytes(t)
		testkit.Do(t, c.net.balancer, func() error {
			for i := range 4 * config().MaxFlows {
				flood[14+14], flood[14+15], flood[14+21] = byte(i>>16), byte(i>>8), byte(i)
				if _, err := c.net.server(c.d, flood); err != nil {
					return err
				}
			}
			return nil
		})
		if to := c.send(clientContinues); to != was {
			t.Errorf("%v: after a flood the connection goes to %v, not to %v", forged, to, was)
		}
	}
}

// An SCTP association ends only with an ABORT with its verification tag.
func TestForgedAbort(t *testing.T) {
	w := newWorld(t, service.Tunnel, false)
	for _, genuine := range []bool{false, true} {
		c := w.connect(t)
		c.sctp = true
		was := c.open([]tcpSegment{{by: "client", flags: "S"}, {by: "client", flags: "A"}, {by: "client", flags: "A"}})
		abort := tcpSegment{by: "forger", flags: "R"}
		if genuine {
			abort.by = "client"
		}
		c.send(abort)
		if to := c.send(tcpSegment{by: "forger", flags: "S"}); (to == was) == genuine {
			t.Errorf("genuine %v: after the ABORT an INIT went to %v, while the association was on %v", genuine, to, was)
		}
	}
}

// A client that reuses its port connects immediately: to a newly chosen backend if the
// connection ended with its own numbers, to the same one if that is unknown, and to
// another if its backend is removed.
func TestPortsAreUsedAgain(t *testing.T) {
	type use struct {
		ends  []tcpSegment
		moves bool // to another backend
	}
	try := func(t *testing.T, w *world, uses map[string]use) {
		for name, u := range uses {
			t.Run(name, func(t *testing.T) {
				c := w.connect(t)
				was := c.open(opening)
				if slices.Contains(natMethods, w.method) {
					c.all(synack, opening[1], answer)
				}
				c.all(u.ends...)
				to := c.send(again)
				if (to != was) != u.moves {
					t.Errorf("the connection was on %v, a new one on its ports goes to %v", was, to)
				}
				if data := c.send(clientContinues); data != to {
					t.Errorf("the new connection was opened on %v, its data goes to %v", to, data)
				}
			})
			t.Run(name+", the server has left", func(t *testing.T) {
				c := w.connect(t)
				was := c.open(opening)
				c.all(u.ends...)
				f := w.frontend(service.TCP, 7)
				f.Backends = slices.DeleteFunc(f.Backends, func(b service.Backend) bool { return b.Addr.Addr() == was })
				upsert(t, w.d, f)
				if to := c.send(again); to == was {
					t.Errorf("a new connection goes to %v, which has left", to)
				}
				upsert(t, w.d, w.frontend(service.TCP, 7))
			})
		}
	}
	inEach(t, directReturn, onlyV4, func(t *testing.T, w *world) {
		try(t, w, map[string]use{
			"the client ends first":      {[]tcpSegment{clientFIN, finalACK}, true},
			"the server ends first":      {[]tcpSegment{{by: "client", flags: "A", sent: 100, got: 5001}, {by: "client", flags: "FA", sent: 100, got: 5001}}, true},
			"reset":                      {[]tcpSegment{clientRST}, true},
			"much was sent":              {[]tcpSegment{distantFIN}, false},
			"the client has crashed":     {nil, false},
			"half-closed, still sending": {[]tcpSegment{clientFIN, {by: "client", flags: "A", sent: 101, got: 9000}}, false},
		})
	})
	inEach(t, natMethods, onlyV4, func(t *testing.T, w *world) {
		try(t, w, map[string]use{
			"the client ends first":  {[]tcpSegment{clientFIN, answer, serverFIN, finalACK}, true},
			"the server ends first":  {[]tcpSegment{serverFIN, clientFIN, answer}, true},
			"the server resets":      {[]tcpSegment{serverRST}, true},
			"the client resets":      {[]tcpSegment{clientRST}, false},
			"only the client ends":   {[]tcpSegment{clientFIN, answer}, false},
			"only the server ends":   {[]tcpSegment{serverFIN, answer}, false},
			"the client has crashed": {nil, false},
		})
	})
}

var natMethods = []service.Method{service.NAT, service.FullNAT}

// With nat and fullnat the backend's reply decides whether a client's segment was
// genuine.
func TestServerDecides(t *testing.T) {
	stories := map[string]struct {
		then  []tcpSegment
		state bpf.BalancerFlowState
	}{
		"a SYN and a challenge":           {[]tcpSegment{forgedSYN, answer}, bpf.BalancerFlowStateFLOW_ESTABLISHED},
		"a RST, and the client continues": {[]tcpSegment{forgedRST, clientContinues}, bpf.BalancerFlowStateFLOW_ESTABLISHED},
		"a FIN, and the client continues": {[]tcpSegment{forgedFIN, clientContinues}, bpf.BalancerFlowStateFLOW_ESTABLISHED},
		"a FIN and the server's":          {[]tcpSegment{clientFIN, serverFIN}, bpf.BalancerFlowStateFLOW_TIME_WAIT},
		"the server's FIN and the client": {[]tcpSegment{serverFIN, clientContinues}, bpf.BalancerFlowStateFLOW_SERVER_FIN},
		"the server's RST":                {[]tcpSegment{serverRST}, bpf.BalancerFlowStateFLOW_CLOSED},
		"a RST, a SYN, accepted":          {[]tcpSegment{clientRST, again, synack}, bpf.BalancerFlowStateFLOW_ANSWERED},
		"a RST, a SYN, accepted, an ACK":  {[]tcpSegment{clientRST, again, synack, opening[1]}, bpf.BalancerFlowStateFLOW_ESTABLISHED},
	}
	inEach(t, natMethods, onlyV4, func(t *testing.T, w *world) {
		for name, story := range stories {
			t.Run(name, func(t *testing.T) {
				c := w.connect(t)
				was := c.open([]tcpSegment{opening[0]})
				c.all(synack, opening[1], opening[2], answer)
				c.all(story.then...)
				if _, e := c.entry(); e.State() != uint32(story.state) {
					t.Errorf("the state is %s, want %s", c.d.flows.States[e.State()], c.d.flows.States[story.state])
				}
				if to := c.send(tcpSegment{by: "client", flags: "A"}); to != was {
					t.Errorf("it goes to %v, not to %v", to, was)
				}
			})
		}
	})
}

// Forged ACKs establish nothing with nat and fullnat: an attacker that sends SYNs and
// ACKs in the names of others fills no part of the table for established flows.
func TestForgedACKEstablishesNothing(t *testing.T) {
	inEach(t, natMethods, onlyV4, func(t *testing.T, w *world) {
		c := w.connect(t)
		c.open([]tcpSegment{forgedSYN})
		c.all(forgedACK, tcpSegment{by: "server", flags: "R"}, forgedACK)
		if _, e := c.entry(); e.State() != uint32(bpf.BalancerFlowStateFLOW_OPENING) {
			t.Errorf("the state is %s", c.d.flows.States[e.State()])
		}
	})
}

// resetByClient returns a fullnat connection on the only port, reset by its client or in
// its name.
func resetByClient(t *testing.T) *connection {
	t.Helper()
	n := newNet(t)
	c := config()
	c.Ports = PortRange{20000, 20000}
	d := n.open(t, c)
	d.sweeper.close()
	upsert(t, d, frontend(service.FullNAT, vips[false], service.TCP, servers[false]))
	con := &connection{T: t, net: n, d: d, client: "192.168.77.2:4242", vip: vips[false]}
	con.open([]tcpSegment{{by: "client", flags: "S"}})
	con.server = servers[false]
	con.all(synack, opening[1], answer, clientRST)
	return con
}

// A flow that may have ended and has been silent for long keeps its fullnat port until
// another flow needs it. Then it is over.
func TestLingeringFlowsGiveUpTheirPorts(t *testing.T) {
	con := resetByClient(t)
	n, d := con.net, con.d
	row{name: "the port is taken", in: packet{src: "192.168.77.3:1", dst: vips[false], flags: "S"}, verdict: drop, drop: "no-port"}.check(t, n, d)
	con.idle(200)
	con.send(answer) // its backend still reaches its client
	con.send(clientRST)
	con.idle(200)
	row{name: "it lingers", in: packet{src: "192.168.77.3:1", dst: vips[false], flags: "S"}, verdict: redirect,
		out: forth(owns[false], 20000, servers[false])}.check(t, n, d)
	row{name: "and is over", in: packet{src: con.client, dst: vips[false], flags: "A"}, verdict: drop, drop: "no-port"}.check(t, n, d)
}
