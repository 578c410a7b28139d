package dsr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/bpfmap"
)

// Releases before flow_table had a key for its hash do not read that table, and record no
// layouts. They take over the flows of the first layout, so a terminating agent also
// leaves its flows in that form. Remove this file when nobody downgrades to such a
// release any more.

// leaveFlows writes the flows for a release without keyed hashes to take over.
func (h *Agent) leaveFlows() error {
	if err := h.dir.Remove(layout1Flows); err != nil {
		return err
	}
	flows := map[dsrTuple]flow1{}
	for c := newCursor(); !c.Done(); {
		_, sets, err := c.Next(h.obj.FlowTable)
		if err != nil {
			return fmt.Errorf("convert flows for an older release: %w", err)
		}
		for i := range sets {
			flowsToLeave(flows, &sets[i])
		}
	}
	if len(flows) == 0 {
		return nil
	}
	left, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: layout1Flows, Type: ebpf.Hash, Flags: unix.BPF_F_NO_PREALLOC, MaxEntries: uint32(len(flows)),
		KeySize: uint32(binary.Size(dsrTuple{})), ValueSize: uint32(binary.Size(flow1{})),
	})
	if err != nil {
		return fmt.Errorf("convert flows for an older release: %w", err)
	}
	defer left.Close()
	return errors.Join(bpfmap.Hold(left, flows), left.Pin(h.dir.Path(layout1Flows)))
}

func flowsToLeave(flows map[dsrTuple]flow1, set *dsrServerFlowSet) {
	for way, tag := range set.Tag {
		f := &set.Flow[way]
		if tag == 0 || f.State&dsrFlowStateFLOW_ANSWERED == 0 {
			continue // the older release would consider it established
		}
		key := dsrTuple{Src: f.Client, Dst: f.Server, Sport: f.ClientPort, Dport: f.ServerPort, Proto: f.Proto}
		flows[key] = flow1{VIP: f.Vip, VIPPort: f.VipPort, Overhead: f.Overhead, Method: uint32(f.Method), Seen: uint64(f.Seen) << clock.TickShift}
	}
}

// forgetLeft removes what an agent of this release left for older ones or, if one of
// those has run since, this release's table.
func (h *Agent) forgetLeft() error {
	table, key := filepath.Join(layout, kept.Pin(dsrMapFlowTable)), filepath.Join(layout, flowKeyPin)
	if _, err := os.Stat(h.dir.Path(table)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(h.dir.Path(unkeyedFlows)); err == nil {
		return errors.Join(h.dir.Remove(table), h.dir.Remove(key))
	}
	return h.dir.Remove(layout1Flows)
}
