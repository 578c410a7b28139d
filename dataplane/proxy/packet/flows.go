package packet

import (
	"fmt"
	"iter"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/internal/netorder"
	"github.com/fairlead/fairlead/service"
)

// flowsAtOnce are given before the half does other work.
const flowsAtOnce = 4096

// EachFlow gives the flows that a query takes, read from the kernel a piece at
// a time. Flows that come and go meanwhile may be missing. VIP is the service's
// address, Source what the target sees where that is not the client. An error
// ends it.
func (h *Half) EachFlow(q dataplane.FlowQuery) iter.Seq2[dataplane.Flow, error] {
	return func(yield func(dataplane.Flow, error) bool) {
		it := h.obj.PacketFlows.Iterate()
		q.Give(yield, func() (found []dataplane.Flow, more bool, err error) {
			err = h.worker.Do(func() error {
				var key packetTuple
				var f packetPacketFlow
				now := monotonic()
				for range flowsAtOnce {
					if more = it.Next(&key, &f); !more {
						break
					}
					if flow := flowOf(&key, &f, now); f.Kind&answer == 0 && q.Takes(flow) {
						found = append(found, flow)
					}
				}
				if err := it.Err(); err != nil {
					return fmt.Errorf("list the flows: %w", err)
				}
				return nil
			})
			return found, more, err
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

// tickShift is FLOW_TICK_SHIFT.
const tickShift = 30

func flowOf(key *packetTuple, f *packetPacketFlow, now time.Duration) dataplane.Flow {
	flow := dataplane.Flow{
		Client:   netip.AddrPortFrom(key.Src.netip(), netorder.Port(key.Sport)),
		VIP:      netip.AddrPortFrom(key.Dst.netip(), netorder.Port(key.Dport)),
		Protocol: service.Protocol(key.Proto),
		Server:   netip.AddrPortFrom(f.Dst.netip(), netorder.Port(f.Dport)),
		State:    f.State.describe(service.Protocol(key.Proto)),
		Idle:     max(0, now-time.Duration(f.Seen)<<tickShift),
	}
	if f.Kind&masked != 0 {
		flow.Source = netip.AddrPortFrom(f.Src.netip(), netorder.Port(f.Sport))
	}
	return flow
}

// describe gives the state in a word.
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

// monotonic is CLOCK_MONOTONIC, the programs' clock.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}
