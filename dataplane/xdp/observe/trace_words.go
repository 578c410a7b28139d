package observe

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
	"github.com/fairlead/fairlead/internal/netorder"
)

// traceWords formats the trace events of a run as text.
type traceWords struct {
	o    *Observer
	t    *Trace
	name func(service.Key) string
}

func (w *traceWords) read(all bpf.TracerTraceList) {
	n := min(int(all.N), len(all.Entry))
	for _, event := range all.Entry[:n] {
		kind := bpf.TracerTraceKind(event.Kind)
		text := w.text(kind, event.A, event.B)
		if text != "" {
			w.t.Steps = append(w.t.Steps, TraceStep{Note: eventNames[kind], Text: text})
		}
	}
	if int(all.N) > n {
		w.t.Steps = append(w.t.Steps, TraceStep{Note: "more", Text: fmt.Sprintf("and %d more; the trace buffer is full", int(all.N)-n)})
	}
}

// eventNames are the machine-readable kinds.
var eventNames = map[bpf.TracerTraceKind]string{
	bpf.TracerTraceKindTRACE_PACKET: "packet", bpf.TracerTraceKindTRACE_NOT_OURS: "not-ours", bpf.TracerTraceKindTRACE_OWN: "own",
	bpf.TracerTraceKindTRACE_FRONTEND: "frontend", bpf.TracerTraceKindTRACE_UNSERVED: "unserved", bpf.TracerTraceKindTRACE_GUARD: "guard",
	bpf.TracerTraceKindTRACE_SLOT: "slot", bpf.TracerTraceKindTRACE_SERVER: "server",
	bpf.TracerTraceKindTRACE_FLOW: "flow", bpf.TracerTraceKindTRACE_FLOW_MADE: "flow-made",
	bpf.TracerTraceKindTRACE_ASK: "ask", bpf.TracerTraceKindTRACE_NEXT_HOP: "next-hop",
	bpf.TracerTraceKindTRACE_ELSEWHERE: "elsewhere", bpf.TracerTraceKindTRACE_DROP: "drop", bpf.TracerTraceKindTRACE_ANSWER: "answer",
	bpf.TracerTraceKindTRACE_TURN: "turn", bpf.TracerTraceKindTRACE_REPLACED: "replaced", bpf.TracerTraceKindTRACE_AFFINITY: "affinity",
	bpf.TracerTraceKindTRACE_FRAGMENT: "fragment", bpf.TracerTraceKindTRACE_MAC: "mac",
	bpf.TracerTraceKindTRACE_SYN: "syn",
}

// text formats an event, or returns an empty string if it adds no information.
func (w *traceWords) text(kind bpf.TracerTraceKind, a uint32, b uint64) string {
	switch kind {
	case bpf.TracerTraceKindTRACE_PACKET:
		return packetWords(a, b)
	case bpf.TracerTraceKindTRACE_NOT_OURS:
		return "the destination is neither a VIP nor an address of this load balancer (its bit is clear): passed to the kernel"
	case bpf.TracerTraceKindTRACE_OWN:
		return "to this load balancer's own address: a backend's reply, or passed to the kernel"
	case bpf.TracerTraceKindTRACE_FRONTEND:
		return w.frontend(a, b)
	case bpf.TracerTraceKindTRACE_UNSERVED:
		return "the destination is a VIP, but no frontend has this port and protocol"
	case bpf.TracerTraceKindTRACE_GUARD:
		if a != 0 {
			w.would("consume rate limit tokens")
		}
		return "allowed by source ranges and rate limits"
	case bpf.TracerTraceKindTRACE_SLOT:
		return fmt.Sprintf("hash %#08x: slot %d of %d", b>>32, uint32(b), a)
	case bpf.TracerTraceKindTRACE_SERVER:
		return w.owners(a, uint32(b), b>>32 != 0)
	case bpf.TracerTraceKindTRACE_ELSEWHERE:
		return fmt.Sprintf("continues in the program %q", program.Steps[bpf.BalancerStep(a)])
	case bpf.TracerTraceKindTRACE_ASK:
		return lookupWords(a, b)
	case bpf.TracerTraceKindTRACE_NEXT_HOP:
		return fmt.Sprintf("sent on %s to %s", w.nic(a), mac(b))
	case bpf.TracerTraceKindTRACE_DROP:
		w.t.Drop = bpf.NameOf(w.o.reasons, a)
		return "dropped: " + w.t.Drop
	case bpf.TracerTraceKindTRACE_ANSWER:
		return answerWords(b)
	case bpf.TracerTraceKindTRACE_MAC:
		return fmt.Sprintf("the frame is for another host: %s is not the MAC address of %s or of a device on top of it", mac(b), w.t.Interface)
	}
	return w.flow(kind, a, b)
}

// would adds a change that the packet would make. The slow_path program may repeat one.
func (w *traceWords) would(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.t.Would, text) {
		w.t.Would = append(w.t.Would, text)
	}
}

// flow formats the events about flow tracking.
func (w *traceWords) flow(kind bpf.TracerTraceKind, a uint32, b uint64) string {
	server := w.addrOf(uint32(b))
	switch kind {
	case bpf.TracerTraceKindTRACE_FLOW:
		return w.known(bpf.TracerTraceFlow(a), server, uint32(b>>32)&15, uint32(b>>40)&15)
	case bpf.TracerTraceKindTRACE_FLOW_MADE:
		if a == 0 {
			return "selected by the hash because the flow table is full: " + server
		}
		w.would("open a flow to %s", server)
		return "selected for a new flow: " + server
	case bpf.TracerTraceKindTRACE_TURN:
		w.would("advance the scheduler's position")
	case bpf.TracerTraceKindTRACE_REPLACED:
		w.would("evict a flow table entry: %s, %s", bpf.NameOf(w.o.states, a), server)
	case bpf.TracerTraceKindTRACE_AFFINITY:
		w.would("send the client's next flows to %s", server)
	case bpf.TracerTraceKindTRACE_SYN:
		return w.syn(bpf.BalancerSynEvent(a), server)
	case bpf.TracerTraceKindTRACE_FRAGMENT:
		return w.fragment(bpf.TracerTraceFragment(a))
	}
	return ""
}

// syn formats the events of the SYN flood protection.
func (w *traceWords) syn(event bpf.BalancerSynEvent, server string) string {
	switch event {
	case bpf.BalancerSynEventSYN_COOKIE_SENT:
		return "under pressure: the SYN is answered with a SYN cookie, no state is stored"
	case bpf.BalancerSynEventSYN_COOKIE_ACCEPTED:
		w.would("open a flow to %s", server)
		return "the ACK returns a valid cookie; selected for its connection: " + server
	case bpf.BalancerSynEventSYN_COOKIE_REJECTED:
		return "under pressure: the ACK belongs to no known flow and returns no valid cookie"
	case bpf.BalancerSynEventSYN_CHALLENGE_SENT:
		return "under pressure: the SYN's source is not validated; the SYN is answered with a challenge"
	case bpf.BalancerSynEventSYN_CHALLENGE_ANSWERED:
		w.would("remember the source as validated")
		return "the RST answers a challenge"
	case bpf.BalancerSynEventSYN_ADMITTED:
		return "under pressure: the SYN's source is validated"
	}
	return ""
}

// known describes a looked-up flow, with its states before and after.
func (w *traceWords) known(which bpf.TracerTraceFlow, server string, before, after uint32) string {
	if which == bpf.TracerTraceFlowTRACE_FLOW_UNKNOWN {
		return "unknown flow"
	}
	words := "known flow: "
	if which == bpf.TracerTraceFlowTRACE_FLOW_ANSWER {
		words = "reply of a known flow: "
	}
	if names := w.o.states; before != after {
		w.would("change the flow from %s to %s", bpf.NameOf(names, before), bpf.NameOf(names, after))
	} else {
		w.would("renew the flow's lifetime")
	}
	return words + server
}

func (w *traceWords) fragment(which bpf.TracerTraceFragment) string {
	switch which {
	case bpf.TracerTraceFragmentTRACE_FRAGMENT_FIRST:
		w.would("store the ports for the datagram's other fragments")
	case bpf.TracerTraceFragmentTRACE_FRAGMENT_WAITS:
		w.would("wait in the agent for the datagram's first fragment")
		return "a later fragment; the first one has not arrived"
	}
	return "a fragment of a datagram"
}

// answerWords describes an answer by the program itself.
func answerWords(mtu uint64) string {
	if mtu != 0 {
		return fmt.Sprintf("answered by the load balancer: packet too big, maximum %d bytes", mtu)
	}
	return "answered by the load balancer: echo reply"
}

// packetWords describes what the program has parsed.
func packetWords(a uint32, length uint64) string {
	words := []string{fmt.Sprintf("parsed as %s, %d bytes", service.Protocol(a), length)}
	for bit, word := range []string{"opens a flow", "ends a flow", "continues a flow"} {
		if a>>8&(1<<bit) != 0 {
			words = append(words, word)
		}
	}
	if a>>16&1 != 0 {
		words = append(words, "inconsistent lengths")
	}
	return strings.Join(words, ", ")
}

func (w *traceWords) frontend(id uint32, b uint64) string {
	flags := bpf.BalancerFrontendFlags(uint32(b))
	words := fmt.Sprintf("forwarding mode %s, scheduler %s",
		entry.Method(bpf.BalancerMethod(b>>32)), entry.Scheduler(bpf.BalancerScheduler(b>>40)))
	if flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL != 0 {
		words += ", flow table"
	}
	if flags&bpf.BalancerFrontendFlagsFRONTEND_GUARDED != 0 {
		words += ", source ranges or rate limits"
	}
	return fmt.Sprintf("frontend %s: %s", w.keyOf(id), words)
}

// keyOf returns the frontend of a number, and its Service.
func (w *traceWords) keyOf(id uint32) string {
	k, ok := w.o.frontend(id)
	if !ok {
		return fmt.Sprintf("ID %d", id)
	}
	if name := w.name(k); name != "" {
		return fmt.Sprintf("%s (Service %s)", k, name)
	}
	return k.String()
}

func (w *traceWords) addrOf(server uint32) string {
	var s bpf.BalancerServer
	if server == 0 || w.o.program.Servers.Lookup(server, &s) != nil || s.Used == 0 {
		return "no backend"
	}
	return netip.AddrPortFrom(entry.FromAddr(s.Addr), netorder.Port(s.Port)).String()
}

func (w *traceWords) owners(first, chain uint32, opens bool) string {
	words := "the slot belongs to " + w.addrOf(first)
	switch {
	case opens:
		return words + ", which receives the new flow"
	case chain == 0:
		return words + "; no other backend can have its flows"
	case first == 0:
		return words + "; its flows may belong to " + w.chain(chain)
	}
	return words + "; a flow that it does not know may belong to " + w.chain(chain)
}

func (w *traceWords) chain(index uint32) string {
	var c bpf.BalancerChain
	if err := w.o.program.Chains.Lookup(index, &c); err != nil {
		return "chain " + fmt.Sprint(index)
	}
	var all []string
	for _, owner := range entry.Owners(c) {
		all = append(all, owner.String())
	}
	return strings.Join(all, ", then ")
}

// lookupWords describes the results of bpf_fib_lookup, in their order.
func lookupWords(rc uint32, b uint64) string {
	answers := []string{
		"route found", "blackhole", "unreachable", "prohibited", "not forwarded: local, or no route",
		"forwarding is disabled on the interface", "lightweight tunnel (unsupported)", "no neighbor entry for the next hop", "packet exceeds the MTU",
		"no source address",
	}
	words := "kernel route lookup: " + bpf.NameOf(answers, rc)
	if mtu := uint32(b); rc == 0 && mtu != 0 {
		words += fmt.Sprintf(", MTU %d", mtu)
	}
	return words
}

func (w *traceWords) nic(index uint32) string {
	if name := w.o.links.Names()[int(index)]; name != "" {
		return name
	}
	if nic, err := net.InterfaceByIndex(int(index)); err == nil {
		return nic.Name + ", which this data plane does not use"
	}
	return fmt.Sprintf("interface %d", index)
}

// mac decodes an address from a trace event.
func mac(b uint64) net.HardwareAddr {
	a := make(net.HardwareAddr, 6)
	for i := range a {
		a[i] = byte(b >> (8 * i))
	}
	return a
}
