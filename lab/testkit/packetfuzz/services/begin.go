package services

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/proxied"
	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// begin handles the first packet of a flow.
func (m *model) begin() int32 {
	v := &m.v
	f := m.asked()
	if f == nil {
		return m.notOurs()
	}
	isInside := m.hook.place != outside
	switch c := choiceOf(f, isInside); {
	case !allows(f, &v.Src):
		return m.drop("SOURCE_RANGE")
	case v.Proto == wire.TCP && !v.Opens():
		return m.stray(f)
	case len(c.Targets) == 0 && c.Empty == proxy.Dropped:
		return m.drop("NO_LOCAL")
	case len(c.Targets) == 0:
		m.count("REFUSED")
		if v.Proto == wire.TCP {
			return m.answerReset()
		}
		return m.answerError(unreachable, 0)
	default:
		h, verdict := m.choose(f, c)
		if h == nil {
			return verdict
		}
		if verdict := m.remember(h, f); verdict != untouched {
			return verdict
		}
		return m.leave(*m.flows[v.Tuple])
	}
}

func allows(f *proxy.Frontend, client *wire.Addr) bool {
	if f.Closed {
		return false
	}
	a := netip.AddrFrom16(*client).Unmap()
	return len(f.Allow) == 0 || slices.ContainsFunc(f.Allow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// notOurs handles a packet for no service. A SYN that bypasses a service raises doubts
// about an older flow with the same ports.
func (m *model) notOurs() int32 {
	if m.hook.place == leaving || !m.v.Opens() {
		return untouched
	}
	t := m.v.Turned()
	switch h := m.find(&t); {
	case h != nil && h.kind&isLooped != 0:
	case h != nil && !h.over():
		h.state |= doubted
		h.attempt = digest(m.v.Attempt(m.frame))
	default:
		m.forget(&t)
	}
	return untouched
}

// stray handles a segment that opens nothing, of an unknown flow.
func (m *model) stray(f *proxy.Frontend) int32 {
	v := &m.v
	if v.Resets() || f.Kind == proxy.NodePort || m.config.nodes[v.Dst] {
		return m.pass("STRAY")
	}
	m.count("RESET")
	return m.answerReset()
}

// target selects an endpoint for a client.
func (m *model) target(f *proxy.Frontend, c *proxy.Choice) wire.Endpoint {
	k := clientKey{m.v.Src, m.config.IDs[proxied.KeyOf(f.Key)]}
	if f.Affinity > 0 {
		a := m.affinities[k]
		if a != nil && m.ns-a.used < uint64(f.Affinity) && proxied.Find(c.Targets, a.target) != nil {
			a.used = m.ns
			return a.target
		}
	}
	e := proxied.EndpointOf(c.Targets[uint64(m.nextRandom())*uint64(len(c.Targets))>>32])
	if f.Affinity > 0 {
		m.affinities[k] = &affinity{e, m.ns}
	}
	return e
}

// choose creates a new flow: its endpoint, and the source that this sees. If it returns
// nil, the packet ends with a verdict.
func (m *model) choose(f *proxy.Frontend, c *proxy.Choice) (*half, int32) {
	v := &m.v
	e := m.target(f, c)
	if e.Addr.Is4() == v.V6 {
		return nil, m.drop("WRONG_FAMILY")
	}
	h := &half{seen: m.now(), fromInside: m.hook.place != outside}
	h.to = wire.Tuple{Src: v.Src, Dst: e.Addr, SPort: v.SPort, DPort: e.Port}
	local := true
	if m.hook.place != inside {
		t := proxied.Find(c.Targets, e)
		local = t != nil && t.Local
	}
	switch {
	case m.hook.place == leaving:
		h.kind = isOwn
		if _, answer := m.way(&h.to.Src, &h.to.Dst, 1); local && answer == packetfuzz.RouteNotForwarded {
			h.kind |= isLooped
			h.to.Src = v.Dst
		}
	case !local || h.to.Dst == h.to.Src:
		if verdict := m.mask(h); verdict != untouched {
			return nil, verdict
		}
	case m.hook.place == inside && m.isOnOneBridge(h):
		h.kind = isBridged
	}
	return h, untouched
}

// mask gives a flow this node's own address as source.
func (m *model) mask(h *half) int32 {
	w, answer := m.way(&m.v.Src, &h.to.Dst, 1)
	switch answer {
	case packetfuzz.RouteNotForwarded:
		return untouched
	case packetfuzz.RouteFound:
	default:
		return m.drop("NO_WAY")
	}
	a := m.config.maskOf(w.ifindex, m.v.V6)
	if a.Zero() {
		return m.drop("NO_SOURCE")
	}
	h.to.Src = a
	h.kind |= isMasked
	return untouched
}

// isOnOneBridge reports whether an endpoint is behind another port of the bridge on which
// a packet arrived.
func (m *model) isOnOneBridge(h *half) bool {
	bridge, ok := m.config.bridges[m.hook.ifindex]
	if !ok {
		return false
	}
	w, answer := m.way(&m.v.Src, &h.to.Dst, 0)
	return answer == packetfuzz.RouteFound && w.ifindex == bridge
}

// remember stores both halves of a flow, and counts it. A flow from a port to itself has one
// half for both: the endpoint's.
func (m *model) remember(h *half, f *proxy.Frontend) int32 {
	claimed := h.kind&isMasked == 0 && m.claim(h)
	for range 64 {
		if claimed {
			break
		}
		h.to.SPort = uint16(m.config.maskFirst + uint32(uint64(m.nextRandom())*uint64(m.config.maskCount)>>32))
		claimed = m.claim(h)
	}
	if !claimed {
		return m.drop("NO_PORT")
	}
	if h.other(m.v.Proto) == m.v.Tuple {
		return untouched
	}
	made := *h
	m.flows[m.v.Tuple] = &made
	m.count("FLOW_MADE")
	m.connections[m.config.IDs[proxied.KeyOf(f.Key)]]++
	return untouched
}

// claim stores the endpoint's half, unless another flow looks the same to the endpoint.
func (m *model) claim(h *half) bool {
	key := h.other(m.v.Proto)
	back := h.turned(&m.v.Tuple)
	if m.flows[key] != nil {
		if held := m.find(&key); held != nil && held.to != back.to && !held.over() {
			return false
		}
		m.forget(&key)
	}
	m.flows[key] = back
	return true
}
