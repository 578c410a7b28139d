package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/memory"
	"github.com/fairlead/fairlead/internal/craft"
	"github.com/fairlead/fairlead/schedule"
	"github.com/fairlead/fairlead/service"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Fixture {
		c := &conformer{wire: newWire(t), methods: map[schedule.Flow]bool{}}
		c.open(t)
		t.Cleanup(func() { must(t, c.current.Detach()) })
		return c
	})
}

// conformer is IPVS with frames going in and coming out.
type conformer struct {
	*wire
	current *DataPlane
	// methods has the flows that went by their method once: those that are
	// remembered need not change it with their frontend.
	methods map[schedule.Flow]bool
}

func (c *conformer) open(t *testing.T) {
	t.Helper()
	var err error
	c.current, err = Open(Config{NetNS: c.balancer.Path()})
	must(t, err)
}

func (c *conformer) DataPlane() dataplane.DataPlane { return settled{c.current} }

func (c *conformer) Reopen(t *testing.T) {
	must(t, c.current.Close())
	c.open(t)
}

// ChoosesItself implements conformance.OwnChoice.
func (c *conformer) ChoosesItself() {}

// settled is the data plane, whose calls return when the kernel has forgotten the
// flows of servers that are gone: it does so in the background.
type settled struct{ *DataPlane }

func (s settled) Upsert(f dataplane.Frontend) error {
	if err := s.DataPlane.Upsert(f); err != nil {
		return err
	}
	return s.forgotten(f.Key, f.Backends)
}

func (s settled) Delete(k service.Key) error {
	if err := s.DataPlane.Delete(k); err != nil {
		return err
	}
	return s.forgotten(k, nil)
}

// forgotten waits until the kernel remembers no flow to k but of these servers.
func (s settled) forgotten(k service.Key, stay []service.Backend) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left := 0
		for f, err := range s.EachFlow(dataplane.FlowQuery{VIP: netip.AddrPortFrom(k.VIP, 0), Protocol: k.Protocol}) {
			if err != nil {
				return err
			}
			stays := slices.ContainsFunc(stay, func(b service.Backend) bool {
				return f.Server.Addr() == b.Addr.Addr() && (b.Addr.Port() == 0 || b.Addr.Port() == f.Server.Port())
			})
			if k.Port <= f.VIP.Port() && f.VIP.Port() <= max(k.Port, k.Last) && !stays {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: the kernel still remembers %d flows of servers that are gone", k, left)
		}
	}
}

// Forward sends a real frame and reads from what comes out where it went.
func (c *conformer) Forward(t *testing.T, flow schedule.Flow, opens bool, length int) (memory.Decision, error) {
	t.Helper()
	out, back := c.send(t, frameOf(t, flow, opens, length))
	if len(out) > 1 {
		return memory.Decision{}, fmt.Errorf("%d packets came of one: %v", len(out), out)
	}
	if len(out) == 0 {
		if slices.ContainsFunc(back, func(w way) bool { return w.dst == flow.VIP }) {
			return memory.Decision{}, memory.ErrNotOurs // routed as any other
		}
		return memory.Decision{}, conformance.ErrNowhere
	}
	held, err := c.current.List()
	must(t, err)
	f, ok := find(held, flow)
	if !ok {
		return memory.Decision{}, fmt.Errorf("went to %v, and no frontend is there", out[0])
	}
	return c.decide(f, flow, out[0])
}

// find gives the frontend that a flow is for: that of its port before one of a
// range, before that of the whole address.
func find(held []dataplane.Frontend, flow schedule.Flow) (found dataplane.Frontend, ok bool) {
	for _, f := range held {
		has := f.VIP == flow.VIP && (f.Whole() || f.Protocol == flow.Protocol) && f.Port <= flow.Port && flow.Port <= max(f.Port, f.Last)
		if has && (!ok || found.Whole() || !f.Range()) {
			found, ok = f, true
		}
	}
	return found, ok
}

// decide reads where a packet went: a flow's first by the frontend's method.
func (c *conformer) decide(f dataplane.Frontend, flow schedule.Flow, w way) (memory.Decision, error) {
	methods := service.Methods
	if !c.methods[flow] {
		methods = []service.Method{f.Method}
	}
	for _, b := range f.Backends {
		server := b.Addr
		if server.Port() == 0 {
			server = netip.AddrPortFrom(server.Addr(), flow.Port)
		}
		if slices.ContainsFunc(methods, func(m service.Method) bool { return w.leads(m, f.Encapsulation, flow, server) }) {
			c.methods[flow] = true
			return memory.Decision{Server: server}, nil
		}
	}
	return memory.Decision{}, fmt.Errorf("%s %s: went to %v, where no backend is", f.Method, f.Encapsulation, w)
}

// leads says that a packet goes to a server by a method.
func (w way) leads(m service.Method, e service.Encapsulation, flow schedule.Flow, server netip.AddrPort) bool {
	plain := w.tunnel == "" && w.protocol == flow.Protocol && w.mac == macOf(server.Addr())
	switch m {
	case service.NAT:
		return plain && w.src == flow.Client && netip.AddrPortFrom(w.dst, w.port) == server
	case service.FullNAT:
		return plain && (w.src.Addr() == own4 || w.src.Addr() == own6) && netip.AddrPortFrom(w.dst, w.port) == server
	case service.DR:
		return plain && w.src == flow.Client && w.dst == flow.VIP && w.port == flow.Port
	case service.Tunnel:
		return w.tunnel == e && w.dst == server.Addr() && w.inner == flow.VIP && w.mac == macOf(server.Addr())
	}
	return false
}

// frameOf gives a packet of a flow, with length bytes of IP packet.
func frameOf(t *testing.T, flow schedule.Flow, opens bool, length int) []byte {
	t.Helper()
	p := craft.Packet{From: flow.Client, To: netip.AddrPortFrom(flow.VIP, flow.Port), Protocol: strings.ToLower(flow.Protocol.String()), Opens: opens}
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
