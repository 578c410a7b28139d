package status

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
)

// dsrIndex is the indexed state of a DSR agent.
type dsrIndex struct {
	known  bool
	here   map[place]Entry
	abroad map[netip.Addr]string
}

// place is a frontend at a backend.
type place struct {
	service.Key
	server netip.AddrPort
}

// dsrAgent reads the state of the DSR agent and stores it for the backends.
func (g *gatherer) dsrAgent() (*DSRAgent, error) {
	s, err := g.DSRAgent()
	if err != nil {
		return nil, err
	}
	flows := map[place]int{}
	for _, f := range s.Flows {
		flows[place{service.Key{VIP: f.VIP.Addr(), Port: f.VIP.Port(), Protocol: f.Protocol}, f.Server}]++
	}
	g.dsr = dsrIndex{known: true, here: map[place]Entry{}, abroad: s.Abroad}
	out := &DSRAgent{
		Attached: s.Attached, Flows: len(s.Flows), Counters: s.Counters,
		ChecksSenders: s.Senders.Checked, Senders: s.Senders.Known,
	}
	for _, e := range s.Entries {
		shown := Entry{
			VIP: e.VIP, Port: e.Port, Protocol: e.Protocol.String(), ForwardingMode: e.Method, Server: e.Server,
			Flows: flows[place{e.Key, e.Delivered()}],
		}
		out.Entries = append(out.Entries, shown)
		g.dsr.here[place{e.Key, e.Server}] = shown
	}
	return out, nil
}

// local returns what the DSR agent does for a backend; nil if none is needed.
func (g *gatherer) local(f *plan.Frontend, b plan.Backend) *Local {
	if !g.dsr.known || f.Service.Method.LeadsBack() {
		return nil
	}
	if e, here := g.dsr.here[place{f.Key, b.Addr}]; here {
		return &Local{Here: true, Flows: e.Flows}
	}
	if why := g.dsr.abroad[b.Addr.Addr()]; why != "" {
		return &Local{Reason: why}
	}
	return &Local{Reason: "not programmed into the DSR agent: see the problems in fairlead status"}
}

// dsrState returns the state of a frontend if there is no data plane.
func (g *gatherer) dsrState(f *plan.Frontend, backends []Backend) (plan.State, string) {
	for _, b := range backends {
		if b.Local != nil && b.Local.Here {
			return plan.Active, ""
		}
	}
	if m := f.Service.Method; m.LeadsBack() {
		return Idle, fmt.Sprintf("%s returns replies through the load balancer and does not use the DSR agent", m)
	}
	if err := g.view.Failures["DSR agent"]; err != nil {
		return Pending, err.Error()
	}
	return Idle, "none of its backends is on this node"
}

// complete returns s with empty instead of nil lists.
func (s DSRAgent) complete() *DSRAgent {
	s.Attached = append([]string{}, s.Attached...)
	s.Entries = append([]Entry{}, s.Entries...)
	s.Senders = append([]netip.Addr{}, s.Senders...)
	return &s
}

// key returns "TCP 10.1.1.1:80".
func (e Entry) key() string {
	return Frontend{VIP: e.VIP, Port: e.Port, Protocol: e.Protocol}.Key()
}

// shownSenders limits the addresses in one line of status.
const shownSenders = 10

// senders describes from whom backends here accept tunneled packets.
func (s DSRAgent) senders() string {
	if !s.ChecksSenders {
		return "any: every host that reaches this node can tunnel packets to its backends, past rate limits (--accept-from closes that)"
	}
	words := []string{}
	for _, a := range s.Senders[:min(len(s.Senders), shownSenders)] {
		words = append(words, a.String())
	}
	if more := len(s.Senders) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.TrimSuffix(fmt.Sprintf("%s known, others are rejected: %s", number(len(s.Senders)), strings.Join(words, ", ")), ": ")
}
