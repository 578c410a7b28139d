package serverhalf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/service"
)

// State is what the half does at one moment.
type State struct {
	// Attached has one line a device: "veth1: tcx: servers behind it".
	Attached []string
	// Abroad are the servers desired that are not on this node, and why not.
	Abroad map[netip.Addr]string
	// Entries are as List gives them, Flows and Counters as those methods do.
	Entries  []Entry
	Flows    []Flow
	Counters map[string]uint64
}

// State looks at everything at once.
func (h *Half) State() (s State, err error) {
	err = h.do(func() error {
		rows, err := h.rows()
		flows, err2 := h.flows()
		counters, err3 := h.counters()
		s = State{
			Attached: h.hook.describe(), Abroad: maps.Clone(h.abroad), Entries: entriesOf(rows), Flows: flows, Counters: counters,
		}
		return errors.Join(err, err2, err3)
	})
	return s, err
}

// Flow is one flow that is remembered.
type Flow struct {
	Client   netip.AddrPort   `json:"client"`
	Server   netip.AddrPort   `json:"server"`
	VIP      netip.AddrPort   `json:"vip"`
	Protocol service.Protocol `json:"protocol"`
	Method   service.Method   `json:"method"`
	// Idle is how long ago the client last sent, exact to a second.
	Idle time.Duration `json:"idle"`
}

// Flows gives the flows that are remembered, in no order. Flows that come and
// go meanwhile may be missing.
func (h *Half) Flows() (flows []Flow, err error) {
	err = h.do(func() error {
		flows, err = h.flows()
		return err
	})
	return flows, err
}

// flowBatch is how many flows are read at once; no bucket of the table may have
// more.
const flowBatch = 4096

// flows reads in batches: a cursor of single keys would lose its place where
// its key is evicted.
func (h *Half) flows() ([]Flow, error) {
	keys, values := make([]serverTuple, flowBatch), make([]serverServerFlow, flowBatch)
	var cursor ebpf.MapBatchCursor
	var flows []Flow
	now := monotonic()
	for {
		n, err := h.obj.ServerFlows.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			flows = append(flows, flowOf(keys[i], values[i], now))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return flows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the flows: %w", err)
		}
	}
}

func flowOf(key serverTuple, f serverServerFlow, now time.Duration) Flow {
	method := service.Tunnel
	if f.Method == methodDirectNAT {
		method = service.DirectNAT
	}
	return Flow{
		Client:   netip.AddrPortFrom(key.Src.netip(), netorder.Port(key.Sport)),
		Server:   netip.AddrPortFrom(key.Dst.netip(), netorder.Port(key.Dport)),
		VIP:      netip.AddrPortFrom(f.Vip.netip(), netorder.Port(f.VipPort)),
		Protocol: service.Protocol(key.Proto),
		Method:   method,
		Idle:     max(0, now-time.Duration(f.Seen)),
	}
}

// Counters gives what became of packets since the half was first opened, by
// the names of bpf/server/maps.h ("tunnel-delivered", "passed-fragment",
// "dropped-rewrite").
func (h *Half) Counters() (counters map[string]uint64, err error) {
	err = h.do(func() error {
		counters, err = h.counters()
		return err
	})
	return counters, err
}

func (h *Half) counters() (map[string]uint64, error) {
	names, err := counterNames()
	if err != nil {
		return nil, err
	}
	counters := make(map[string]uint64, len(names))
	for i, name := range names {
		var perCPU []uint64
		if err := h.obj.ServerCounters.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %s: %w", name, err)
		}
		for _, n := range perCPU {
			counters[name] += n
		}
	}
	return counters, nil
}

// counterNames reads the names of enum server_counter from the object, once.
var counterNames = sync.OnceValues(func() ([]string, error) {
	spec, err := loadServer()
	if err != nil {
		return nil, err
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("server_counter", &enum); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range enum.Values {
		name, ok := strings.CutPrefix(v.Name, "SERVER_COUNTER_")
		if !ok {
			continue // the number of counters, at the end
		}
		if v.Value != uint64(len(names)) {
			return nil, errors.New("enum server_counter has holes")
		}
		names = append(names, strings.ReplaceAll(strings.ToLower(name), "_", "-"))
	}
	return names, nil
})

// onlyDropped picks the counters of packets that ended here, without the prefix.
func onlyDropped(counters map[string]uint64) map[string]uint64 {
	drops := map[string]uint64{}
	for name, n := range counters {
		if reason, ok := strings.CutPrefix(name, "dropped-"); ok {
			drops[reason] = n
		}
	}
	return drops
}
