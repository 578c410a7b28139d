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

// State is what the half does at one moment.
type State struct {
	// Attached has one line a device: "veth1: tcx: servers behind it".
	Attached []string
	// Abroad are the servers desired that are not on this node, and why not.
	Abroad map[netip.Addr]string
	// Entries are as List gives them, Flows and Counters as those methods do.
	Entries  []Entry
	Flows    []dataplane.Flow
	Counters map[string]uint64
	// Senders says from whom tunnelled packets are accepted.
	Senders Senders
}

// Senders are the load balancers from which tunnelled packets are accepted, sorted, those
// that have just left among them. Without Checked anyone is accepted.
type Senders struct {
	Checked bool
	Known   []netip.Addr
}

// State looks at everything at once.
func (h *Half) State() (State, error) {
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

// Degraded lists the optional features that this kernel refuses.
func (h *Half) Degraded() []features.Degraded { return h.missing }

// Counters gives what became of packets since the half was first opened, by
// the names of bpf/server/maps.h ("tunnel-delivered", "passed-fragment",
// "dropped-rewrite").
func (h *Half) Counters() (map[string]uint64, error) { return devices.Ask(h.worker, h.counters) }

func (h *Half) counters() (map[string]uint64, error) {
	return counter.Read(loadServer, "server_counter", h.obj.ServerCounters)
}
