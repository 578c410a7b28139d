package packet

import (
	"fmt"
	"iter"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/internal/walk"
	"github.com/fairlead/fairlead/internal/netorder"
)

// entriesAtOnce is the number of entries read per call to the kernel: 360 KB.
const entriesAtOnce = 4096

type flowCursor = walk.Cursor[packetTuple, packetPacketFlow]

func newCursor() *flowCursor { return walk.New[packetTuple, packetPacketFlow](entriesAtOnce) }

// EachFlow returns the flows that match a query, read from the kernel in batches. Flows
// that start or end concurrently may be missing. VIP is the service's address, Source
// what the endpoint sees if that is not the client. An error ends it.
func (h *Half) EachFlow(q dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		cursor := newCursor()
		q.Give(yield, func() (found []dataplane.Flow, more bool, err error) {
			err = h.worker.Do(func() error {
				keys, flows, err := cursor.Next(h.obj.PacketFlows)
				if err != nil {
					return fmt.Errorf("list the flows: %w", err)
				}
				now := clock.Now()
				for i := range keys {
					if flow := flowOf(&keys[i], &flows[i], now); flows[i].Kind&answer == 0 && q.Takes(flow) {
						found = append(found, flow)
					}
				}
				return nil
			})
			return found, !cursor.Done(), err
		})
	}
}

const (
	answer = packetPacketFlowKindPACKET_FLOW_ANSWER
	masked = packetPacketFlowKindPACKET_FLOW_MASKED

	answered     = packetPacketFlowStatePACKET_FLOW_ANSWERED
	confirmed    = packetPacketFlowStatePACKET_FLOW_CONFIRMED
	clientClosed = packetPacketFlowStatePACKET_FLOW_CLIENT_FIN
	targetClosed = packetPacketFlowStatePACKET_FLOW_TARGET_FIN
	reset        = packetPacketFlowStatePACKET_FLOW_RESET
)

func flowOf(key *packetTuple, f *packetPacketFlow, now time.Duration) dataplane.Flow {
	flow := dataplane.Flow{
		Client:   netip.AddrPortFrom(key.Src.netip(), netorder.Port(key.Sport)),
		VIP:      netip.AddrPortFrom(key.Dst.netip(), netorder.Port(key.Dport)),
		Protocol: service.Protocol(key.Proto),
		Server:   netip.AddrPortFrom(f.Dst.netip(), netorder.Port(f.Dport)),
		State:    f.State.describe(service.Protocol(key.Proto)),
		Idle:     clock.Ago(f.Seen, now),
	}
	if f.Kind&masked != 0 {
		flow.Source = netip.AddrPortFrom(f.Src.netip(), netorder.Port(f.Sport))
	}
	return flow
}

// describe returns the name of the state.
func (s packetPacketFlowState) describe(p service.Protocol) string {
	switch {
	case p == service.UDP && s&answered == 0:
		return "udp-opening"
	case p == service.UDP:
		return "udp"
	case s&reset != 0:
		return "reset"
	case s&clientClosed != 0 && s&targetClosed != 0:
		return "closed"
	case s&(clientClosed|targetClosed) != 0:
		return "finishing"
	case s&confirmed != 0:
		return "established"
	}
	return "opening"
}
