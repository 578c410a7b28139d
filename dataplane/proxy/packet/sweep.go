package packet

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
)

// To add a new flow the kernel evicts one that was not looked up for long, whether that
// is over or only silent. So flows that are over are removed before.
const (
	sweepEvery = 10 * time.Second
	// sweepMost is the number of entries per sweep, 80 ms of a CPU (BenchmarkSweep).
	// The next sweep continues from there.
	sweepMost = 1 << 18
)

// keepSwept sweeps until the worker ends.
func (h *Half) keepSwept() {
	tick := time.NewTicker(h.cfg.sweepEvery)
	defer tick.Stop()
	cursor := newCursor()
	for {
		select {
		case <-h.worker.Done():
			return
		case <-tick.C:
		}
		if err := h.sweep(cursor); err != nil && !errors.Is(err, ErrClosed) {
			h.log.Error("packets: failed to remove ended flows", "error", err)
			cursor.Rewind()
		}
	}
}

// sweep continues at cursor, and from the beginning after the end. The worker does other
// work between batches.
func (h *Half) sweep(cursor *flowCursor) error {
	for range sweepMost / entriesAtOnce {
		err := h.worker.Do(func() error {
			over, err := h.nextOver(cursor)
			if err == nil {
				err = h.removeOver(over)
			}
			return err
		})
		if err != nil {
			return err
		}
		if cursor.Done() {
			cursor.Rewind()
			return nil
		}
	}
	return nil
}

// nextOver returns the keys of the next entries that are over.
func (h *Half) nextOver(cursor *flowCursor) (over []packetTuple, err error) {
	keys, flows, err := cursor.Next(h.obj.PacketFlows)
	now := clock.Now()
	for i := range keys {
		if h.isOver(&keys[i], &flows[i], now) {
			over = append(over, keys[i])
		}
	}
	return over, err
}

// isOver reports whether the programs no longer recognize an entry, and have not for a
// tick.
func (h *Half) isOver(key *packetTuple, f *packetPacketFlow, now time.Duration) bool {
	idle := int32(uint32(now>>clock.TickShift) - f.Seen)
	return idle > int32(h.keep.of(f.State, service.Protocol(key.Proto)))
}

// of returns how many ticks an entry is retained.
func (k *packetPacketFlowKeep) of(s packetPacketFlowState, p service.Protocol) uint32 {
	const closed = clientClosed | targetClosed
	switch {
	case p == service.UDP && s&answered != 0:
		return k.Datagrams
	case p == service.UDP:
		return k.Unanswered
	case s&reset != 0:
		return k.Reset
	case s&closed == closed:
		return k.Closed
	case s&closed != 0:
		return k.HalfClosed
	case s&confirmed != 0:
		return k.Established
	}
	return k.Opening
}

// removeOver removes what is still over: a new flow may have the same key.
func (h *Half) removeOver(keys []packetTuple) error {
	var errs []error
	for i := range keys {
		var f packetPacketFlow
		err := h.obj.PacketFlows.Lookup(&keys[i], &f)
		if err == nil && h.isOver(&keys[i], &f, clock.Now()) {
			err = h.remove(&keys[i])
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove removes an entry, unless a new flow has got the key since it was checked: then
// the kernel has removed that one, and it is put back.
func (h *Half) remove(key *packetTuple) error {
	var f packetPacketFlow
	if err := h.obj.PacketFlows.LookupAndDelete(key, &f); err != nil {
		return fmt.Errorf("delete a flow: %w", err)
	}
	if h.isOver(key, &f, clock.Now()) {
		h.swept++
		return nil
	}
	if err := h.obj.PacketFlows.Update(key, &f, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("restore a flow: %w", err)
	}
	return nil
}
