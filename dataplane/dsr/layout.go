package dsr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/bpfload"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/tc"
)

// layout is the name of the directory of the pinned maps. The first layout had its maps
// next to the links, without a separate directory.
const layout = "layout2"

// unkeyedFlows is the pin of a flow table whose hash has no key, which releases before
// flow_table left in this layout's directory.
var unkeyedFlows = filepath.Join(layout, "server_flows")

// takeOver replaces a predecessor's programs. Its state in maps that are no longer used
// is copied twice: flows may start until its programs are replaced.
func (h *Agent) takeOver(state *bpfload.State, newHook tc.Opener) error {
	old, err := h.openOlder()
	if err != nil {
		return err
	}
	defer old.close()
	carried, err := state.Carry()
	if len(carried) > 0 {
		h.log.Info("DSR agent: taking over maps of another release", "maps", carried)
	}
	if err != nil {
		return err
	}
	if err := h.carryOver(old); err != nil {
		return fmt.Errorf("migrate pinned maps: %w", err)
	}
	programmed, err := h.rows()
	if err != nil {
		return err
	}
	if err := errors.Join(h.serveDR(programmed), h.inheritNextServers(programmed), h.inheritSources(), h.inheritBalancers(), h.forgetRows()); err != nil {
		return err
	}
	if err := state.Replace(h.obj.hooked().All()...); err != nil {
		return err
	}
	if _, err := state.Carry(); err != nil { // changes since the first copy
		return err
	}
	if h.hook, err = newHook(h.dir, h.obj.hooked()); err != nil {
		return err
	}
	if err := errors.Join(h.carryOver(old), state.Old(dsrMapFlowTable, h.adoptSet)); err != nil {
		return fmt.Errorf("migrate pinned maps: %w", err)
	}
	return errors.Join(state.Settle(), h.removeOlder())
}

// adoptSet stores the flows of a set from another table.
func (h *Agent) adoptSet(value []byte) error {
	var set dsrServerFlowSet
	if _, err := binary.Decode(value, binary.NativeEndian, &set); err != nil {
		return err
	}
	return h.adoptAll(&set)
}

func (h *Agent) adoptAll(set *dsrServerFlowSet) error {
	for way, tag := range set.Tag {
		if tag == 0 {
			continue
		}
		if err := h.adopt(set.Flow[way]); err != nil {
			return err
		}
	}
	return nil
}

// older are the maps of earlier releases, nil if absent.
type older struct{ localVIPs1, flows1, unkeyed *ebpf.Map }

// layout1Flows is the pin of the first layout's flows.
const layout1Flows = "server_flows"

// localVIP1 is the first layout's struct local_vip. The key was the same as now.
type localVIP1 struct {
	Deliver       dsrAddr
	Port          uint16
	_             uint16
	Method, Place uint32
	_             uint32
	Left          uint64
}

// flow1 is the first layout's struct server_flow, keyed by struct tuple.
type flow1 struct {
	VIP      dsrAddr
	VIPPort  uint16
	Overhead uint8
	_        uint8
	Method   uint32
	Seen     uint64
}

func (h *Agent) openOlder() (*older, error) {
	var old older
	for name, m := range map[string]**ebpf.Map{
		dsrMapLocalVips: &old.localVIPs1, layout1Flows: &old.flows1, unkeyedFlows: &old.unkeyed,
	} {
		pinned, err := ebpf.LoadPinnedMap(h.dir.Path(name), nil)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			old.close()
			return nil, fmt.Errorf("pinned map %s: %w", name, err)
		}
		*m = pinned
	}
	return &old, nil
}

func (o *older) close() {
	for _, m := range []*ebpf.Map{o.localVIPs1, o.flows1, o.unkeyed} {
		if m != nil {
			m.Close()
		}
	}
}

func (h *Agent) removeOlder() error {
	var errs []error
	for _, name := range []string{dsrMapLocalVips, layout1Flows, dsrMapServerCounters, unkeyedFlows} {
		errs = append(errs, h.dir.Remove(name))
	}
	return errors.Join(errs...)
}

// carryOver copies what is not here yet.
func (h *Agent) carryOver(old *older) error {
	var errs []error
	if old.localVIPs1 != nil {
		errs = append(errs, h.carryRows(old.localVIPs1))
	}
	for from, carry := range map[*ebpf.Map]func(*ebpf.Map) error{old.flows1: h.carryFlows1, old.unkeyed: h.carryUnkeyed} {
		if from == nil {
			continue
		}
		if err := carry(from); err != nil { // the programs serve without them, as after a reboot
			h.log.Warn("DSR agent: failed to migrate flows of a previous release", "error", err)
		}
	}
	return errors.Join(errs...)
}

func (h *Agent) carryRows(from *ebpf.Map) error {
	var key dsrLocalVipKey
	var row localVIP1
	it := from.Iterate()
	for it.Next(&key, &row) {
		if key.VipPort == 0 {
			continue // a "target" of dsr-nat: its packets now contain their VIP
		}
		e := Entry{
			Key:     service.Key{VIP: key.Vip.netip(), Port: netorder.Port(key.VipPort), Protocol: service.Protocol(key.Proto)},
			Method:  methodOf(dsrServerMethod(row.Method)),
			Server:  netip.AddrPortFrom(key.Server.netip(), netorder.Port(row.Port)),
			Deliver: row.Deliver.netip(),
		}
		for key, now := range e.rows() {
			now.Place, now.Left = dsrServerPlace(row.Place), row.Left
			if err := h.obj.LocalVips.Update(key, now, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
				return fmt.Errorf("write %s: %w", e, err)
			}
		}
	}
	return it.Err()
}

// carryFlows1 makes the program itself store each flow of the first layout. Flows there
// were established, or soon will be.
func (h *Agent) carryFlows1(from *ebpf.Map) error {
	const state = dsrFlowStateFLOW_OPENED | dsrFlowStateFLOW_ANSWERED | dsrFlowStateFLOW_CONFIRMED
	var key dsrTuple
	var old flow1
	it := from.Iterate()
	for it.Next(&key, &old) {
		err := h.adopt(dsrServerFlow{
			Client: key.Src, Server: key.Dst, ClientPort: key.Sport, ServerPort: key.Dport, Proto: key.Proto,
			Vip: old.VIP, VipPort: old.VIPPort, Overhead: old.Overhead, Method: dsrServerMethod(old.Method),
			Seen: uint32(old.Seen >> clock.TickShift), State: state,
		})
		if err != nil {
			return err
		}
	}
	return it.Err()
}

// carryUnkeyed does so with the flows of a table whose hash has no key.
func (h *Agent) carryUnkeyed(from *ebpf.Map) error {
	for c := newCursor(); !c.Done(); {
		_, sets, err := c.Next(from)
		if err != nil {
			return err
		}
		for i := range sets {
			if err := h.adoptAll(&sets[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt stores a flow that is not known yet. If its set is full it is lost, as it would
// be there.
func (h *Agent) adopt(f dsrServerFlow) error {
	const ethernet = 14
	frame, err := binary.Append(make([]byte, ethernet), binary.NativeEndian, f)
	if err != nil {
		return err
	}
	if _, err := h.obj.Adopt.Run(&ebpf.RunOptions{Data: frame}); err != nil {
		return fmt.Errorf("migrate a flow: %w", err)
	}
	return nil
}
