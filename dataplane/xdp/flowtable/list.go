package flowtable

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/internal/netorder"
)

// setsAtOnce is the number of sets read at a time: 256 KB.
const setsAtOnce = 2048

// View is what flows are described with.
type View struct {
	Owners []uint32 // as in Owners.Current
	Addr   func(server uint32) netip.AddrPort
	// Source4 and Source6 are the load balancer's own addresses.
	Source4, Source6 netip.Addr
}

// Some lists the tracked flows that match a query in a part of the table, starting with from,
// 0 for the first, and returns where the next part starts, 0 at the end. Opening flows are
// included only with nat and fullnat: otherwise the table does not know their addresses yet.
// Concurrent changes may be missed.
func (t *Table) Some(q dataplane.FlowQuery, from int, v View) (found []dataplane.Flow, next int, err error) {
	if t.Sets == nil {
		return nil, 0, errClosed
	}
	now := Now()
	to := min(from+setsAtOnce, len(t.Sets))
	for i := from; i < to; i++ {
		for j := range t.Sets[i].Way {
			e := &t.Sets[i].Way[j]
			tag, w := tagOf(&e.Tag), Word(atomic.LoadUint64(&e.Word))
			if tag == 0 || !w.IsFlow() || !w.described() || int32(w.Expires()-now) <= 0 {
				continue
			}
			data := t.Data[i*Ways+j]
			loadsInOrder()
			if id := w.server(); tagOf(&e.Tag) != tag || int(id) >= len(v.Owners) || v.Owners[id] != w.generation()+1 {
				continue
			}
			if f := t.describe(w, data, now, v); q.Takes(f) {
				found = append(found, f)
			}
		}
	}
	if to == len(t.Sets) {
		to = 0
	}
	return found, to, nil
}

var errClosed = errors.New("xdp: flows: the data plane is closed")

func (t *Table) describe(w Word, data bpf.BalancerFlowData, now uint32, v View) dataplane.Flow {
	f := dataplane.Flow{
		Client:   netip.AddrPortFrom(entry.FromAddr(data.Client), netorder.Port(data.ClientPort)),
		VIP:      netip.AddrPortFrom(entry.FromAddr(data.Vip), netorder.Port(data.VipPort)),
		Protocol: service.Protocol(data.Egress >> 24 &^ proxied),
		Server:   v.Addr(w.server()),
		State:    t.States[w.State()],
		Idle:     time.Duration(t.lives[w.State()]-(w.Expires()-now)) << TickShift,
	}
	if data.NatPort != 0 {
		own := v.Source4
		if !f.Client.Addr().Is4() {
			own = v.Source6
		}
		f.Source = netip.AddrPortFrom(own, netorder.Port(data.NatPort))
	}
	return f
}

// finishingIdle is the number of ticks without a packet after which a flow that started
// to end is considered ended. A timeout may lag behind the flow's last packet
// (FLOW_RENEW).
const finishingIdle = 8

// Live counts the live flows. Those that have started to end count as long as packets arrive.
func (t *Table) Live() (flows int, err error) {
	if t.Sets == nil {
		return 0, errClosed
	}
	now := Now()
	for i := range t.Sets {
		for j := range t.Sets[i].Way {
			e := &t.Sets[i].Way[j]
			tag, w := tagOf(&e.Tag), Word(atomic.LoadUint64(&e.Word))
			left := int32(w.Expires() - now)
			switch {
			case tag == 0 || !w.IsFlow() || left <= 0 || w.in(bpf.BalancerFlowStateFLOW_CLOSED):
			case w.hasEnded() && int32(t.lives[w.State()])-left > finishingIdle:
			default:
				flows++
			}
		}
	}
	return flows, nil
}
