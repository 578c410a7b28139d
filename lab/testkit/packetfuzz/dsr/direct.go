package dsr

import (
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// found is the frontend of a packet outside a tunnel.
type found struct {
	row  *row
	vip  wire.Endpoint
	list []wire.Endpoint
}

// findDirect uses the list, which begins with the VIP, or the destination. A later
// fragment has no ports.
func (m *model) findDirect(port uint16, proto byte, ports bool) (f found, ok bool) {
	v := &m.outer
	f.list = readList(m.frame, listAt(v), v.List, v.V6)
	f.vip = wire.Endpoint{Addr: v.Dst, Port: port}
	if v.List > 0 {
		f.vip = f.list[0]
	}
	k := key{vip: f.vip.Addr, server: v.Dst, vipPort: f.vip.Port, serverPort: port, proto: proto}
	switch {
	case m.config.dr && f.vip.Addr == v.Dst:
		k.server, k.serverPort = wire.Addr{}, 0
	case v.List == 0:
		return f, false
	}
	if ports {
		f.row = m.config.find(&k)
	} else {
		f.row = m.config.findBare(&k.vip, &k.server, proto)
	}
	return f, f.row != nil && f.row.method != tunnel
}

// direct handles a packet outside a tunnel.
func (m *model) direct() int32 {
	v := &m.outer
	if v.List == 0 && !m.config.dr {
		return m.plain()
	}
	f, ok := m.findDirect(v.DPort, v.Proto, true)
	if !ok {
		if v.List > 0 {
			return m.pass("PASSED_FOREIGN_OPTION")
		}
		return m.plain()
	}
	if f.row.place != m.hook.place {
		return m.notHere(f.row)
	}
	flow := f.row.flow(&v.Tuple)
	var next *wire.Endpoint
	var at int
	if len(f.list) > 1 {
		next, at = m.next(f.list, 1, wire.Endpoint{Addr: f.row.server, Port: f.row.port}, f.vip, f.row, v.Proto, true)
	}
	switch m.decide(flow, v, next != nil, f.vip, f.row, wire.ListBytes(6, v.V6)) {
	case sendOn:
		return m.sendOn(f.list, *next, at, nil)
	case collision:
		return m.drop("COLLISION")
	case tableFull:
		return m.drop("FLOWS_FULL")
	case denied:
		return m.drop("SOURCE_DENIED")
	}
	if keepsPort(v, v.DPort, flow.DPort) {
		return m.drop("REWRITE")
	}
	e := m.change()
	m.strip(e)
	m.readdress(v, 14, v.L4+len(e.Frame)-len(m.frame), to(v, flow.Dst, flow.DPort), true)
	if f.row.method == dr {
		return m.pass("DR_DELIVERED")
	}
	return m.pass("DSR_NAT_DELIVERED")
}

// strip removes the whole list.
func (m *model) strip(e *packetfuzz.Expected) {
	if m.outer.ListBytesIn() > 0 {
		m.shorten(e, &m.outer, nil)
	}
}

func (m *model) directLater() int32 {
	v := &m.outer
	f, ok := m.findDirect(0, v.Proto, false)
	if !ok {
		switch {
		case v.List > 0:
			return m.pass("PASSED_FRAGMENT")
		case m.hook.place == host && m.had(v, shortcutTaken):
			return m.shortcut(&v.Dst)
		}
		return untouched
	}
	if f.row.place != m.hook.place {
		return m.notHere(f.row)
	}
	if m.had(v, sentOn) && len(f.list) > 1 {
		if next, at := m.next(f.list, 1, wire.Endpoint{Addr: f.row.server, Port: f.row.port}, f.vip, f.row, v.Proto, false); next != nil {
			return m.sendOn(f.list, *next, at, nil)
		}
	}
	e := m.change()
	m.strip(e)
	m.readdress(v, 14, v.L4+len(e.Frame)-len(m.frame), to(v, f.row.deliver, 0), false)
	return m.pass("FRAGMENT_DELIVERED")
}

func (m *model) directError() int32 {
	v := &m.outer
	if v.List == 0 && !m.config.dr {
		return m.plainError()
	}
	q, ok := v.ReadQuoted(m.frame)
	if !ok || q.Src != v.Dst {
		if v.List > 0 {
			return m.pass("PASSED_FOREIGN_ERROR")
		}
		return untouched
	}
	f, ok := m.findDirect(q.SPort, q.Proto, true)
	if !ok {
		if v.List > 0 {
			return m.pass("PASSED_FOREIGN_ERROR")
		}
		return m.plainError()
	}
	if f.row.place != m.hook.place {
		return m.notHere(f.row)
	}
	flow := f.row.flowOfError(&q)
	if m.table.find(flow) == nil && len(f.list) > 1 {
		if next, at := m.next(f.list, 1, wire.Endpoint{Addr: f.row.server, Port: f.row.port}, f.vip, f.row, q.Proto, true); next != nil {
			return m.sendOn(f.list, *next, at, &q)
		}
	}
	e := m.change()
	m.strip(e)
	m.translate(v, &q, len(e.Frame)-len(m.frame), true, wire.Endpoint{Addr: flow.Dst, Port: flow.DPort}, v.Src, flow.Dst)
	return m.pass("ERROR_DELIVERED")
}

// sendOn sends a packet to the next backend of its list, with the VIP and the rest of the
// list.
func (m *model) sendOn(list []wire.Endpoint, next wire.Endpoint, at int, q *wire.Quoted) int32 {
	v := &m.outer
	switch {
	case next.Addr.Is4() == v.V6:
		return m.pass("PASSED_FOREIGN_OPTION")
	case m.hook.place == host && v.TTL <= 1:
		return m.pass("PASSED_TTL")
	}
	if v.Fragment {
		m.rememberFragment(v, sentOn, wire.Addr{})
	}
	later := v.Kind == wire.Later
	if q == nil && !later && keepsPort(v, v.DPort, next.Port) {
		return m.drop("REWRITE")
	}
	e := m.change()
	rest := append([]wire.Endpoint{list[0]}, list[at+1:]...)
	m.shorten(e, v, rest)
	shift := len(e.Frame) - len(m.frame)
	if q != nil {
		m.translate(v, q, shift, true, next, v.Src, next.Addr)
	} else {
		m.readdress(v, 14, v.L4+shift, to(v, next.Addr, next.Port), !later)
	}
	m.hop(e, v)
	return m.sendToSecond(&next.Addr, len(e.Frame))
}

// notHere handles a packet for a backend at another hook.
func (m *model) notHere(r *row) int32 {
	if m.hook.place == host {
		return m.shortcut(&r.server)
	}
	return untouched
}

// plain handles a packet that addresses a backend directly.
func (m *model) plain() int32 {
	v := &m.outer
	f := m.table.find(&v.Tuple)
	switch {
	case f == nil:
		return untouched
	case v.Opens() && f.alive(m.now()): // it may be forged: the backend's answer decides
		m.note(f, flowDoubted)
		f.attempt = uint16(v.Attempt(m.frame))
		return untouched
	case v.Opens():
		m.table.forget(&v.Tuple)
		return m.pass("FLOW_FORGOTTEN")
	case f.method == tunnel:
		return untouched
	case m.hook.place == host && f.place != host:
		return m.shortcut(&v.Dst)
	}
	f.seen = m.now()
	m.note(f, flowConfirmed|stateOf(v))
	return untouched
}

func (m *model) plainError() int32 {
	v := &m.outer
	if m.hook.place != host {
		return untouched
	}
	q, ok := v.ReadQuoted(m.frame)
	if !ok {
		return untouched
	}
	t := q.Turned()
	if f := m.table.find(&t); f != nil && f.method != tunnel && f.place != host {
		return m.shortcut(&v.Dst)
	}
	return untouched
}

// shortcut passes a packet directly to its pod's device, if there is a route.
func (m *model) shortcut(server *wire.Addr) int32 {
	v := &m.outer
	if v.TTL <= 1 {
		return untouched
	}
	way, answer := m.wayTo(&v.Src, server, len(m.frame))
	if answer != packetfuzz.RouteFound {
		return untouched
	}
	e := m.change()
	m.hop(e, v)
	m.keepHeader(e, v)
	if v.Fragment {
		m.rememberFragment(v, shortcutTaken, wire.Addr{})
	}
	m.count("SHORTCUT")
	m.way = way
	return packetfuzz.ActRedirect
}
