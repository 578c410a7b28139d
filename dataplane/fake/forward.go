package fake

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane"
)

// Reasons not to forward a packet.
var (
	ErrNotOurs    = errors.New("no frontend has this address")
	ErrNoFrontend = errors.New("no frontend of this address has this port and protocol")
	ErrNoServer   = errors.New("no backend accepts new flows")
	ErrFull       = errors.New("all backends have reached their connection limit")
	ErrDenied     = errors.New("the client is denied")
)

// Drops maps the drop reason names of other data planes to these errors. A packet that is
// not ours is not dropped.
var Drops = map[string]error{
	"no-frontend": ErrNoFrontend, "no-backend": ErrNoServer, "full": ErrFull, "source-denied": ErrDenied,
}

// Decision is the destination of a packet.
type Decision struct {
	Server netip.AddrPort
	// Older are other backends that may know the flow if Server does not, in this
	// order. The last may be Server itself, which then accepts it.
	Older []netip.AddrPort
}

// Forward decides about one packet of a flow, with the given length. opens marks a SYN or
// INIT. Like every data plane, it counts the packet and, if the frontend is stateful,
// tracks the flow.
func (d *DataPlane) Forward(flow schedule.Flow, opens bool, length int) (Decision, error) {
	return d.forward(flow, opens, length, nil)
}

// Finish is Forward for a FIN from a flow's client, after which the flow counts as ended.
func (d *DataPlane) Finish(flow schedule.Flow, length int) (Decision, error) {
	decision, err := d.Forward(flow, false, length)
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.find(flow.Key); err == nil && f.Stateful() {
		f.finished[flow] = true
	}
	return decision, err
}

// Follow is Forward next to a data plane with its own choice: if there is a choice and
// that data plane's backend is permitted, it uses that. A SYN or INIT of a flow on a
// draining backend starts the flow again, if the other data plane sends it elsewhere.
func (d *DataPlane) Follow(flow schedule.Flow, opens bool, length int, chosen netip.AddrPort) (Decision, error) {
	return d.forward(flow, opens, length, &chosen)
}

func (d *DataPlane) forward(flow schedule.Flow, opens bool, length int, other *netip.AddrPort) (Decision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.find(flow.Key)
	if f == nil {
		return Decision{}, d.whyNot(flow.VIP)
	}
	if !f.letsIn(flow.Client.Addr()) {
		return Decision{}, ErrDenied
	}
	var id, chosen ring.ID
	var chain []ring.ID
	var fresh bool
	var err error
	if other != nil {
		chosen = f.follow(flow, opens, *other)
	}
	if f.Stateful() {
		id, fresh, err = f.remember(flow, chosen, d.now())
	} else {
		id, chain, err = f.ask(flow, chosen, opens)
		fresh = opens && flow.Protocol != service.UDP
	}
	if err != nil {
		return Decision{}, err
	}
	f.count(id, fresh, length)
	decision := Decision{Server: f.endpoint(id, flow)}
	for _, id := range chain {
		decision.Older = append(decision.Older, f.endpoint(id, flow))
	}
	return decision, nil
}

// find returns a packet's frontend: the one with its exact port, else the first range
// that contains it, else the whole address.
func (d *DataPlane) find(k service.Key) *frontend {
	if f := d.frontends[k]; f != nil {
		return f
	}
	var found *frontend
	for of, f := range d.frontends {
		switch {
		case of.VIP != k.VIP || k.Port < of.Port || k.Port > of.Last,
			of.Protocol != k.Protocol && of.Protocol != service.AnyProtocol:
		case found == nil, found.Port == 0, of.Port != 0 && of.Compare(found.Key) < 0:
			found = f
		}
	}
	return found
}

// whyNot returns why a packet has no frontend.
func (d *DataPlane) whyNot(dst netip.Addr) error {
	for k := range d.frontends {
		if k.VIP == dst {
			return ErrNoFrontend
		}
	}
	return ErrNotOurs
}

// letsIn reports whether a client is allowed and not denied. Rate limits are not
// implemented here.
func (f *frontend) letsIn(client netip.Addr) bool {
	has := func(p netip.Prefix) bool { return p.Contains(client) }
	return (len(f.Allow) == 0 || slices.ContainsFunc(f.Allow, has)) && !slices.ContainsFunc(f.Deny, has)
}

// endpoint returns a backend's address and the port to which a flow is sent.
func (f *frontend) endpoint(id ring.ID, flow schedule.Flow) netip.AddrPort {
	addr := f.ids[id].Addr
	if addr.Port() == 0 {
		return netip.AddrPortFrom(addr.Addr(), flow.Port)
	}
	return addr
}

// follow returns the backend to which another data plane has sent a packet, if it accepts
// new flows, else 0.
func (f *frontend) follow(flow schedule.Flow, opens bool, other netip.AddrPort) ring.ID {
	if id, known := f.flows[flow]; known && opens && f.ids[id].Draining() && f.endpoint(id, flow) != other {
		delete(f.flows, flow)
		delete(f.finished, flow)
		f.conns[id]--
	}
	for id := range f.ids {
		if s := f.server(id); f.endpoint(id, flow) == other && s.Weight > 0 && !s.Full() {
			return id
		}
	}
	return 0
}

// ask returns a packet's backend, and the other ones in the packet, from the ring only,
// unless one is already chosen.
func (f *frontend) ask(flow schedule.Flow, chosen ring.ID, opens bool) (id ring.ID, chain []ring.ID, err error) {
	if chosen != 0 {
		return chosen, nil, nil
	}
	slot := schedule.Slot(f.slots, schedule.HashBy(f.HashBy(), flow))
	if f.SecondChance() && !(opens && flow.Protocol != service.UDP) {
		chain = slot.Chain(flow.Protocol)
	}
	if id = slot.First; id == 0 && len(chain) > 0 {
		id, chain = chain[0], chain[1:]
	}
	if id == 0 {
		err = ErrNoServer
	}
	return id, chain, err
}

// remember returns the backend of a tracked flow, else the client's last one, else the
// one already chosen, else the scheduler's choice.
func (f *frontend) remember(flow schedule.Flow, chosen ring.ID, now time.Time) (id ring.ID, fresh bool, err error) {
	if id, known := f.flows[flow]; known {
		return id, false, nil
	}
	switch id = f.next(flow, chosen, now); {
	case id == 0 && len(ring.Members(f.members)) == 0:
		return 0, false, ErrNoServer
	case id == 0:
		return 0, false, ErrFull
	}
	f.flows[flow] = id
	f.conns[id]++
	if f.Affinity > 0 {
		f.affinity.Saw(flow.Client.Addr(), id, now)
	}
	return id, true, nil
}

// next returns the backend of a new flow.
func (f *frontend) next(flow schedule.Flow, chosen ring.ID, now time.Time) ring.ID {
	if id, had := f.affinity.Server(flow.Client.Addr(), f.Affinity, now); had {
		if s := f.server(id); s.Weight > 0 && !s.Full() {
			return id
		}
	}
	if chosen != 0 {
		return chosen
	}
	return f.chooser.Choose(f.Scheduler, f.slots, schedule.HashBy(f.HashBy(), flow), f.server)
}

// server returns the scheduler's view of a backend.
func (f *frontend) server(id ring.ID) schedule.Server {
	b := f.ids[id]
	s := schedule.Server{Weight: b.Weight, Conns: f.conns[id], MaxConns: b.MaxConns}
	for flow := range f.finished {
		if f.flows[flow] == id {
			s.Ended++
		}
	}
	return s
}

func (f *frontend) count(id ring.ID, fresh bool, length int) {
	name := f.ids[id].Addr.String()
	backend := f.counters.Backends[name]
	for _, c := range []*dataplane.Counts{&f.counters.Total, &backend} {
		c.Packets++
		c.Bytes += uint64(length)
		if fresh {
			c.Flows++
		}
	}
	f.counters.Backends[name] = backend
}
