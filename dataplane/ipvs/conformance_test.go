package ipvs

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Fixture {
		c := &conformer{wire: newWire(t), known: map[schedule.Flow]bool{}, programmed: conformance.Programmed{}}
		c.open(t)
		t.Cleanup(func() { must(t, c.current.Detach()) })
		return c
	}).Recorded(t, "ipvs")
}

// conformer is IPVS with raw frames in and out.
type conformer struct {
	*wire
	current *DataPlane
	// known reports for each flow whether it used the frontend's forwarding mode:
	// tracked flows do not change it with their frontend.
	known      map[schedule.Flow]bool
	programmed conformance.Programmed
}

func (c *conformer) open(t *testing.T) {
	t.Helper()
	var err error
	c.current, err = Open(Config{NetNS: c.balancer.Path()})
	must(t, err)
}

func (c *conformer) DataPlane() dataplane.DataPlane { return settled{c.current, c} }

func (c *conformer) Reopen(t *testing.T) {
	must(t, c.current.Close())
	c.open(t)
}

// OwnChoice implements conformance.OwnChoice.
func (c *conformer) OwnChoice() {}

// settled is the data plane, whose calls wait until the kernel has removed the flows of
// removed backends, which it does in the background.
type settled struct {
	*DataPlane
	of *conformer
}

func (s settled) Upsert(f desired.Frontend) error {
	if err := s.DataPlane.Upsert(f); err != nil {
		return err
	}
	s.of.programmed[f.Key] = f
	return s.settle(f.VIP)
}

func (s settled) Delete(k service.Key) error {
	if err := s.DataPlane.Delete(k); err != nil {
		return err
	}
	delete(s.of.programmed, k)
	if !k.Range() { // another frontend may take over a range's flows
		maps.DeleteFunc(s.of.known, func(flow schedule.Flow, _ bool) bool { return flow.Key == k })
	}
	return s.settle(k.VIP)
}

// settle waits until every tracked flow to a VIP has a backend.
func (s settled) settle(vip netip.Addr) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		lost := 0
		for flow, err := range s.EachFlow(dataplane.FlowQuery{VIP: netip.AddrPortFrom(vip, 0)}) {
			if err != nil {
				return err
			}
			f, _ := s.of.programmed.Find(service.Key{VIP: vip, Port: flow.VIP.Port(), Protocol: flow.Protocol})
			if !slices.ContainsFunc(f.Backends, func(b service.Backend) bool { return endpoint(b, flow.VIP.Port()) == flow.Server }) {
				lost++
			}
		}
		if lost == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: the kernel still remembers %d flows of servers that are gone", vip, lost)
		}
	}
}

// endpoint returns the backend's address and port for packets to a port.
func endpoint(b service.Backend, port uint16) netip.AddrPort {
	if b.Addr.Port() == 0 {
		return netip.AddrPortFrom(b.Addr.Addr(), port)
	}
	return b.Addr
}

// Forward sends a real frame and determines its destination from the output.
func (c *conformer) Forward(t *testing.T, flow schedule.Flow, opens bool, length int) (fake.Decision, error) {
	t.Helper()
	out, back := c.send(t, frameOf(t, flow, opens, length))
	// With conntrack, IPVS silently drops a packet that reopens a flow whose backend
	// drains, forgets the old flow, and accepts the client's next attempt.
	for tries := 0; tries < 20 && len(out)+len(back) == 0 && opens && c.known[flow]; tries++ {
		time.Sleep(50 * time.Millisecond)
		out, back = c.send(t, frameOf(t, flow, opens, length))
	}
	if len(out) > 1 {
		return fake.Decision{}, fmt.Errorf("%d packets came of one: %v", len(out), out)
	}
	if len(out) == 0 {
		if slices.ContainsFunc(back, func(w way) bool { return w.dst == flow.VIP }) {
			return fake.Decision{}, fake.ErrNotOurs // routed like any other
		}
		return fake.Decision{}, conformance.ErrNowhere
	}
	f, ok := c.programmed.Find(flow.Key)
	if !ok {
		return fake.Decision{}, fmt.Errorf("went to %v, and no frontend is there", out[0])
	}
	return c.decide(f, flow, out[0])
}

// decide determines a packet's backend: a flow's first one by the frontend's forwarding
// mode, later ones by any that the frontend may have had.
func (c *conformer) decide(f desired.Frontend, flow schedule.Flow, w way) (fake.Decision, error) {
	for _, b := range f.Backends {
		server := endpoint(b, flow.Port)
		right := w.leads(f.Method, flow, server) && w.tunnel == f.Encapsulation
		known := c.known[flow] && slices.ContainsFunc(service.Methods, func(m service.Method) bool { return w.leads(m, flow, server) })
		if right || known {
			c.known[flow] = true
			return fake.Decision{Server: server}, nil
		}
	}
	return fake.Decision{}, fmt.Errorf("%s %s: went to %v, where no backend is", f.Method, f.Encapsulation, w)
}

// leads reports whether a packet goes to a backend with a forwarding mode.
func (w way) leads(m service.Method, flow schedule.Flow, server netip.AddrPort) bool {
	plain := w.tunnel == "" && w.protocol == flow.Protocol && w.mac == macOf(server.Addr())
	switch m {
	case service.NAT:
		return plain && w.src == flow.Client && netip.AddrPortFrom(w.dst, w.port) == server
	case service.FullNAT:
		return plain && (w.src.Addr() == own4 || w.src.Addr() == own6) && netip.AddrPortFrom(w.dst, w.port) == server
	case service.DR:
		return plain && w.src == flow.Client && w.dst == flow.VIP && w.port == flow.Port
	case service.Tunnel:
		return w.tunnel != "" && w.dst == server.Addr() && w.inner == flow.VIP && w.mac == macOf(server.Addr())
	}
	return false
}

// frameOf returns a flow's packet, with length bytes of IP packet.
func frameOf(t *testing.T, flow schedule.Flow, opens bool, length int) []byte {
	t.Helper()
	p := pktgen.Packet{From: flow.Client, To: netip.AddrPortFrom(flow.VIP, flow.Port), Protocol: strings.ToLower(flow.Protocol.String()), Opens: opens}
	if opens && flow.Protocol == service.TCP {
		p.Flags = []string{"SYN"}
	}
	frame, err := p.Frame()
	must(t, err)
	p.Payload = length - (len(frame) - ethernetHeader)
	frame, err = p.Frame()
	must(t, err)
	if got := len(frame) - ethernetHeader; got != length {
		t.Fatal(errors.New("a frame of another length"), got, length)
	}
	return frame
}

func TestFramesAreRead(t *testing.T) {
	flow := schedule.Flow{Client: netip.MustParseAddrPort("192.168.0.1:1024"), Key: service.Key{VIP: netip.MustParseAddr("10.1.1.1"), Port: 80, Protocol: service.TCP}}
	w, ok := readWay(frameOf(t, flow, true, 120))
	if want := (way{src: flow.Client, dst: flow.VIP, protocol: service.TCP, port: 80}); !ok || w != want {
		t.Errorf("read %v, want %v", w, want)
	}
}
