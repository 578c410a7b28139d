package dsr

import (
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/dataplane/internal/walk"
	"github.com/fairlead/fairlead/internal/netorder"
)

// Flows returns the tracked flows, in no order. Flows that start or end concurrently may
// be missing.
func (h *Agent) Flows() ([]dataplane.Flow, error) { return devices.Ask(h.worker, h.flows) }

func (h *Agent) flows() (flows []dataplane.Flow, err error) {
	err = h.scanFlows(func(f dataplane.Flow) bool {
		flows = append(flows, f)
		return true
	})
	return flows, err
}

// EachFlow returns the flows that match a query, read from the kernel in batches: others
// are not stored, and the agent does other work in between. Their states are "opening",
// "established", "closed" and "reset". An error ends it.
func (h *Agent) EachFlow(q dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		cursor := newCursor()
		q.Give(yield, func() (found []dataplane.Flow, more bool, err error) {
			err = h.worker.Do(func() error {
				return h.scanSome(cursor, func(f dataplane.Flow) {
					if q.Takes(f) {
						found = append(found, f)
					}
				})
			})
			return found, !cursor.Done(), err
		})
	}
}

// scanFlows passes every flow to see until that returns false.
func (h *Agent) scanFlows(see func(dataplane.Flow) bool) error {
	cursor := newCursor()
	for more := true; more && !cursor.Done(); {
		if err := h.scanSome(cursor, func(f dataplane.Flow) { more = more && see(f) }); err != nil {
			return err
		}
	}
	return nil
}

// setsAtOnce is the number of sets read per call to the kernel: 150 KB.
const setsAtOnce = 256

type flowCursor = walk.Cursor[uint32, dsrServerFlowSet]

func newCursor() *flowCursor { return walk.New[uint32, dsrServerFlowSet](setsAtOnce) }

// scanSome passes the flows of the next sets to see.
func (h *Agent) scanSome(c *flowCursor, see func(dataplane.Flow)) error {
	_, sets, err := c.Next(h.obj.FlowTable)
	if err != nil {
		return fmt.Errorf("list the flows: %w", err)
	}
	now := clock.Now()
	for i := range sets {
		for way, tag := range sets[i].Tag {
			if tag != 0 {
				see(flowOf(&sets[i].Flow[way], now))
			}
		}
	}
	return nil
}

func flowOf(f *dsrServerFlow, now time.Duration) dataplane.Flow {
	return dataplane.Flow{
		Client:   netip.AddrPortFrom(f.Client.netip(), netorder.Port(f.ClientPort)),
		Server:   netip.AddrPortFrom(f.Server.netip(), netorder.Port(f.ServerPort)),
		VIP:      netip.AddrPortFrom(f.Vip.netip(), netorder.Port(f.VipPort)),
		Protocol: service.Protocol(f.Proto),
		State:    f.State.String(),
		Idle:     clock.Ago(f.Seen, now),
	}
}

// String returns the name of the state.
func (s dsrFlowState) String() string {
	const (
		closed      = dsrFlowStateFLOW_CLIENT_FIN | dsrFlowStateFLOW_SERVER_FIN
		established = dsrFlowStateFLOW_ANSWERED | dsrFlowStateFLOW_CONFIRMED
	)
	switch {
	case s&(dsrFlowStateFLOW_RESET|dsrFlowStateFLOW_CLIENT_RESET) != 0:
		return "reset"
	case s&closed == closed:
		return "closed"
	case s&established == established:
		return "established"
	}
	return "opening"
}
