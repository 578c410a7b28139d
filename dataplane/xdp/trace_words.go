package xdp

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/service"
)

// traceWords puts the notes of a run in words.
type traceWords struct {
	d        *DataPlane
	v        *variant
	t        *Trace
	name     func(service.Key) string
	stateful bool
}

func (w *traceWords) read(all balancerNotes) {
	n := min(int(all.N), len(all.Note))
	for _, note := range all.Note[:n] {
		kind := balancerNoteKind(note.Kind)
		text := w.text(kind, note.A, note.B)
		if text != "" {
			w.t.Steps = append(w.t.Steps, TraceStep{Note: noteNames[kind], Text: text})
		}
	}
	if int(all.N) > n {
		w.t.Steps = append(w.t.Steps, TraceStep{Note: "more", Text: fmt.Sprintf("and %d more, for which there is no room", int(all.N)-n)})
	}
}

// noteNames are the kinds as programs read them.
var noteNames = map[balancerNoteKind]string{
	balancerNoteKindNOTE_PACKET: "packet", balancerNoteKindNOTE_NOT_OURS: "not-ours", balancerNoteKindNOTE_OWN: "own",
	balancerNoteKindNOTE_FRONTEND: "frontend", balancerNoteKindNOTE_UNSERVED: "unserved", balancerNoteKindNOTE_GUARD: "guard",
	balancerNoteKindNOTE_SLOT: "slot", balancerNoteKindNOTE_SERVER: "server",
	balancerNoteKindNOTE_FLOW: "flow", balancerNoteKindNOTE_FLOW_MADE: "flow-made",
	balancerNoteKindNOTE_ASK: "ask", balancerNoteKindNOTE_NEXT_HOP: "next-hop",
	balancerNoteKindNOTE_ELSEWHERE: "elsewhere", balancerNoteKindNOTE_DROP: "drop", balancerNoteKindNOTE_ANSWER: "answer",
	balancerNoteKindNOTE_MAC: "mac",
}

// text gives a note in words; none for one that says nothing new.
func (w *traceWords) text(kind balancerNoteKind, a uint32, b uint64) string {
	switch kind {
	case balancerNoteKindNOTE_PACKET:
		return packetWords(a, b)
	case balancerNoteKindNOTE_NOT_OURS:
		return "the destination is no VIP and no address of this balancer (its bit is clear): the kernel's"
	case balancerNoteKindNOTE_OWN:
		return "to this balancer's own address: an answer, or the kernel's"
	case balancerNoteKindNOTE_FRONTEND:
		return w.frontend(a, b)
	case balancerNoteKindNOTE_UNSERVED:
		return "to a VIP, but to no frontend of it"
	case balancerNoteKindNOTE_GUARD:
		return "source ranges and limits let it pass"
	case balancerNoteKindNOTE_SLOT:
		return fmt.Sprintf("hash %#08x: slot %d of %d", b>>32, uint32(b), a)
	case balancerNoteKindNOTE_SERVER:
		return w.owners(a, uint32(b), b>>32 != 0)
	case balancerNoteKindNOTE_ELSEWHERE:
		return fmt.Sprintf("goes on in the program %q", stepPrograms[balancerStep(a)])
	case balancerNoteKindNOTE_ASK:
		return askWords(a, b)
	case balancerNoteKindNOTE_NEXT_HOP:
		return fmt.Sprintf("leaves by %s to %s", w.nic(a), mac(b))
	case balancerNoteKindNOTE_DROP:
		w.t.Drop = nameOfNumber(w.d.reasons, a)
		return "dropped: " + w.t.Drop
	case balancerNoteKindNOTE_ANSWER:
		return answerWords(b)
	case balancerNoteKindNOTE_MAC:
		return fmt.Sprintf("the frame is for another host: %s is no MAC address of %s or of a device on top of it", mac(b), w.t.Interface)
	}
	return w.flow(kind, a, b)
}

// flow gives the notes about what is remembered.
func (w *traceWords) flow(kind balancerNoteKind, a uint32, b uint64) string {
	switch kind {
	case balancerNoteKindNOTE_FLOW:
		w.stateful = true
		if a == 0 {
			return "the flow is not known"
		}
		w.t.Changed = append(w.t.Changed, "the flow that is remembered has been used, which makes it live longer")
		return "the flow is known: " + w.addrOf(uint32(b))
	case balancerNoteKindNOTE_FLOW_MADE:
		w.t.Changed = append(w.t.Changed, "a server was chosen, which moves the schedulers on that take turns")
		if a == 0 {
			return "chosen by the hash, since the flow table has no room: " + w.addrOf(uint32(b))
		}
		w.t.Changed = append(w.t.Changed, "the flow is remembered now, as one that opens")
		return "chosen, and the flow remembered: " + w.addrOf(uint32(b))
	}
	return ""
}

// answerWords tells what the program answers by itself.
func answerWords(mtu uint64) string {
	if mtu != 0 {
		return fmt.Sprintf("answered here: too big, %d bytes would do", mtu)
	}
	return "answered here: an echo"
}

// packetWords gives what the program has read.
func packetWords(a uint32, length uint64) string {
	words := []string{fmt.Sprintf("read as %s, %d bytes", service.Protocol(a), length)}
	for bit, word := range []string{"opens a flow", "ends it", "continues it"} {
		if a>>8&(1<<bit) != 0 {
			words = append(words, word)
		}
	}
	if a>>16&1 != 0 {
		words = append(words, "its lengths do not fit")
	}
	return strings.Join(words, ", ")
}

func (w *traceWords) frontend(id uint32, b uint64) string {
	flags := balancerFrontendFlags(uint32(b))
	w.stateful = w.stateful || flags&balancerFrontendFlagsFRONTEND_STATEFUL != 0
	words := fmt.Sprintf("method %s, scheduler %s",
		nameOf(methods, balancerMethod(b>>32)), nameOf(schedulers, balancerScheduler(b>>40)))
	if flags&balancerFrontendFlagsFRONTEND_STATEFUL != 0 {
		words += ", flows are remembered"
	}
	if flags&balancerFrontendFlagsFRONTEND_GUARDED != 0 {
		words += ", source ranges or limits"
	}
	return fmt.Sprintf("frontend %s: %s", w.keyOf(id), words)
}

// keyOf gives the frontend of a number, and its Service.
func (w *traceWords) keyOf(id uint32) string {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	for k, h := range w.d.held {
		if h.value.Id != id {
			continue
		}
		if name := w.name(k); name != "" {
			return fmt.Sprintf("%s (Service %s)", k, name)
		}
		return k.String()
	}
	return fmt.Sprintf("number %d", id)
}

func (w *traceWords) addrOf(server uint32) string {
	var s balancerServer
	if server == 0 || w.d.kernel.Servers.Lookup(server, &s) != nil || s.Used == 0 {
		return "nobody"
	}
	return netip.AddrPortFrom(fromAddr(s.Addr), netorder.Port(s.Port)).String()
}

func (w *traceWords) owners(first, chain uint32, opens bool) string {
	words := "the slot belongs to " + w.addrOf(first)
	switch {
	case opens:
		return words + ", which gets the flow that begins here"
	case chain == 0:
		return words + "; nobody else may have its flows"
	case first == 0:
		return words + "; its flows may be at " + w.chain(chain)
	}
	return words + "; a flow that it does not know may be at " + w.chain(chain)
}

func (w *traceWords) chain(index uint32) string {
	var c balancerChain
	if err := w.d.kernel.Chains.Lookup(index, &c); err != nil {
		return "chain " + fmt.Sprint(index)
	}
	size := 4
	if c.V6 != 0 {
		size = 16
	}
	var all []string
	for i := range int(c.N) {
		at := c.Bytes[i*(size+2):]
		addr, _ := netip.AddrFromSlice(at[:size])
		all = append(all, netip.AddrPortFrom(addr, uint16(at[size])<<8|uint16(at[size+1])).String())
	}
	return strings.Join(all, ", then ")
}

// askWords are the kernel's answers to bpf_fib_lookup, in their order.
func askWords(rc uint32, b uint64) string {
	answers := []string{
		"there is a way", "blackhole", "unreachable", "prohibited", "not to be forwarded: local, or no route",
		"forwarding is off on the interface", "a tunnel of the kernel's own", "the next hop's MAC address is not known", "too big",
		"no source address",
	}
	words := "the kernel's routes: " + nameOfNumber(answers, rc)
	if mtu := uint32(b); rc == 0 && mtu != 0 {
		words += fmt.Sprintf(", MTU %d", mtu)
	}
	return words
}

func (w *traceWords) nic(index uint32) string {
	if name := w.d.interfaceNames()[int(index)]; name != "" {
		return name
	}
	if nic, err := net.InterfaceByIndex(int(index)); err == nil {
		return nic.Name + ", which is not this data plane's"
	}
	return fmt.Sprintf("interface %d", index)
}

// mac reads an address as notes carry it.
func mac(b uint64) net.HardwareAddr {
	a := make(net.HardwareAddr, 6)
	for i := range a {
		a[i] = byte(b >> (8 * i))
	}
	return a
}
