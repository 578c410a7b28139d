package dsr

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/counter"
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/features"
)

// State is the state of the agent at one time.
type State struct {
	// Attached has one line per device: "veth1: tcx: servers behind it".
	Attached []string
	// Abroad are the desired backends that are not on this node, with the reason.
	Abroad map[netip.Addr]string
	// Entries are as returned by List, Flows and Counters as by those methods.
	Entries  []Entry
	Flows    []dataplane.Flow
	Counters map[string]uint64
	// Senders are those from which encapsulated packets are accepted.
	Senders Senders
}

// Senders are the load balancers from which encapsulated packets are accepted, sorted,
// including those that have just left. Without Checked all senders are accepted.
type Senders struct {
	Checked bool
	Known   []netip.Addr
}

// State reads everything in one step.
func (h *Agent) State() (State, error) {
	return devices.Ask(h.worker, func() (State, error) {
		rows, err := h.rows()
		flows, err2 := h.flows()
		counters, err3 := h.counters()
		senders, err4 := h.senders()
		return State{
			Attached: describe(h.hook), Abroad: maps.Clone(h.abroad), Entries: entriesOf(rows), Flows: flows, Counters: counters,
			Senders: senders,
		}, errors.Join(err, err2, err3, err4)
	})
}

// MaxFlows returns the size of the flow table.
func (h *Agent) MaxFlows() int { return int(h.obj.FlowTable.MaxEntries() * flowWays) }

// Placement is State without flows and counters, which are costly to read.
func (h *Agent) Placement() (State, error) {
	return devices.Ask(h.worker, func() (State, error) {
		rows, err := h.rows()
		senders, err2 := h.senders()
		return State{Attached: describe(h.hook), Abroad: maps.Clone(h.abroad), Entries: entriesOf(rows), Senders: senders}, errors.Join(err, err2)
	})
}

// Degraded lists the optional features that this kernel does not support.
func (h *Agent) Degraded() []features.Degraded { return h.missing }

// Counters returns the outcomes of packets since the agent was first opened, by the names
// of bpf/dsr/maps.h ("tunnel-delivered", "passed-fragment", "dropped-rewrite").
func (h *Agent) Counters() (map[string]uint64, error) { return devices.Ask(h.worker, h.counters) }

func (h *Agent) counters() (map[string]uint64, error) {
	return counter.Read(loadDsr, "server_counter", h.obj.ServerCounters)
}
