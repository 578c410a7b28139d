package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/features"
)

// TraceRequest is a frame, and where it arrives.
type TraceRequest struct {
	// Interface is one of the data plane's; empty for its first.
	Interface string `json:"interface,omitempty"`
	// Frame starts with an Ethernet header. A destination of zeros stands for the
	// interface's own address.
	Frame []byte `json:"frame"`
}

// Trace is what the program would do with a frame, and why.
type Trace struct {
	Interface string      `json:"interface"`
	Steps     []TraceStep `json:"steps"`
	// Verdict is XDP_PASS and so on, Drop the reason of a drop. Both are set if an
	// answer is sent instead of the dropped packet.
	Verdict string `json:"verdict"`
	Drop    string `json:"drop,omitempty"`
	// In is the received frame, Out is the frame afterwards.
	In  []byte `json:"in"`
	Out []byte `json:"out"`
	// Would are the changes that the packet would make to the load balancer's state,
	// other than counters. The trace made them only in copies.
	Would []string `json:"would,omitempty"`
	// Attached is the program attached to the interface, which a trace does not run.
	Attached string `json:"attached"`
}

// TraceStep is one decision.
type TraceStep struct {
	// Note is its kind, as in enum trace_kind: "frontend".
	Note string `json:"note"`
	Text string `json:"text"`
}

// ErrFrame is the error of Trace for a frame that the kernel does not accept.
var ErrFrame = errors.New("no frame for a test run")

// leastFrame is the kernel's (net/bpf/test_run.c): an Ethernet header.
const leastFrame = 14

// ErrTracing is the error of Trace after a while, if other traces are running.
var ErrTracing = errors.New("another trace is running: try again")

// Trace runs the program, compiled to report its decisions, on a frame. That
// program reads the attached program's maps without writing them: it works on private
// copies of the entries that the packet needs. One trace runs at a time. name returns a
// frontend's Service.
func (o *Observer) Trace(ctx context.Context, r TraceRequest, name func(service.Key) string) (t Trace, err error) {
	if err := o.program.Missing.Err(features.TestRun); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	if len(r.Frame) < leastFrame {
		return t, fmt.Errorf("trace: %w: %d bytes are less than an Ethernet header", ErrFrame, len(r.Frame))
	}
	if t.Interface = r.Interface; t.Interface == "" {
		t.Interface = o.links.Interfaces[0]
	}
	index, err := o.links.Index(t.Interface)
	if err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	t.In = bytes.Clone(r.Frame)
	if nic, err := net.InterfaceByIndex(index); err == nil && bytes.Equal(t.In[:6], make([]byte, 6)) {
		copy(t.In, nic.HardwareAddr)
	}
	if !lockSoon(ctx, &o.tracing) {
		return t, fmt.Errorf("trace: %w", ErrTracing)
	}
	defer o.tracing.Unlock()
	if err := o.trace(&t, index, name); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

func (o *Observer) trace(t *Trace, ifindex int, name func(service.Key) string) error {
	tracer, err := o.loadTracer()
	if err != nil {
		return err
	}
	defer tracer.Close()
	verdict, out, err := o.runTracer(tracer, t.In, ifindex)
	if err != nil {
		return err
	}
	t.Verdict, t.Out = verdict.String(), out
	var events bpf.TracerTraceList
	if err := tracer.Events.Get(&events); err != nil {
		return fmt.Errorf("read the trace events: %w", err)
	}
	if events.Uncopied > 0 {
		return fmt.Errorf("no memory for copies of %d map entries that this packet needs", events.Uncopied)
	}
	w := &traceWords{o: o, t: t, name: name}
	w.read(events)
	t.Attached, err = o.attachedTo(t.Interface)
	return err
}

// loadedTracer contains the reporting program and its private objects.
type loadedTracer struct {
	Balancer       *ebpf.Program  `ebpf:"balancer"`
	Steps          *ebpf.Map      `ebpf:"steps"`
	Fragments      *ebpf.Map      `ebpf:"fragments"`
	Events         *ebpf.Variable `ebpf:"trace_events"`
	FragmentWanted *ebpf.Variable `ebpf:"fragment_wanted"`
}

// Close closes it, including everything that it wrote.
func (l *loadedTracer) Close() {
	l.Balancer.Close()
	l.Steps.Close()
	l.Fragments.Close()
}

// PrivateMaps are the maps that the program writes and that need no copy of existing
// entries: per-CPU scratch memory, and fragments (runTracer). The program itself copies
// what it writes of the other maps (bpf/balancer/copy.h).
var PrivateMaps = []string{
	bpf.BalancerMapSteps, bpf.BalancerMapFragments,
	bpf.BalancerMapSlowScratch, bpf.BalancerMapHandoverScratch, bpf.BalancerMapSynScratch, bpf.BalancerMapNatScratch, bpf.BalancerMapOlderOwners, bpf.BalancerMapAuthScratch,
}

// TracerSpec returns the object with its private maps. It needs two fragments: the packet
// itself, and the first of its datagram.
func (o *Observer) TracerSpec() (*ebpf.CollectionSpec, error) {
	spec, err := o.program.Tracer()
	if err != nil {
		return nil, err
	}
	spec.Maps[bpf.BalancerMapFragments].Type = ebpf.Hash
	spec.Maps[bpf.BalancerMapFragments].MaxEntries = 2
	return spec, nil
}

func (o *Observer) loadTracer() (*loadedTracer, error) {
	spec, err := o.TracerSpec()
	if err != nil {
		return nil, err
	}
	var l loadedTracer
	if err := o.program.Again(&l, spec, PrivateMaps...); err != nil {
		return nil, fmt.Errorf("load the tracing program: %w", err)
	}
	return &l, nil
}

// runTracer runs the program, and a second time if it looks for a datagram's first
// fragment that the load balancer has. Only this entry is copied here: reading it in the
// program would mark it as used, and so retain it for longer.
func (o *Observer) runTracer(l *loadedTracer, frame []byte, ifindex int) (xdpAction, []byte, error) {
	verdict, out, err := testRun(l.Balancer, frame, ifindex)
	if err != nil {
		return 0, nil, err
	}
	var wanted bpf.BalancerFragmentKey
	if err := l.FragmentWanted.Get(&wanted); err != nil {
		return 0, nil, fmt.Errorf("read the requested fragment's key: %w", err)
	}
	var first bpf.BalancerFragment
	err = ebpf.ErrKeyNotExist
	if wanted != (bpf.BalancerFragmentKey{}) {
		err = o.program.Fragments.Lookup(wanted, &first)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return verdict, out, nil
	}
	if err == nil {
		err = errors.Join(l.Fragments.Put(wanted, first), l.Events.Set(bpf.TracerTraceList{}))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("copy the first fragment: %w", err)
	}
	return testRun(l.Balancer, frame, ifindex)
}

// attachedTo returns the name of the program attached to an interface.
func (o *Observer) attachedTo(name string) (string, error) {
	own, err := o.program.Balancer.Info()
	if err != nil {
		return "", err
	}
	attached, err := o.links.Attached(name)
	if err != nil {
		return "", err
	}
	id, _ := own.ID()
	if attached != id {
		return fmt.Sprintf("program %d, not this agent's program %d: a capture is running, or another tool has replaced it", attached, id), nil
	}
	return fmt.Sprintf("program %d, of the same source as the traced one; it was not run", id), nil
}

// xdpAction is a program's return value, enum xdp_action of linux/bpf.h.
type xdpAction uint32

func (a xdpAction) String() string {
	names := []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}
	return bpf.NameOf(names, uint32(a))
}

// testRun runs a program on a frame received on an interface. It works in the calling
// thread's network namespace.
func testRun(p *ebpf.Program, frame []byte, ifindex int) (xdpAction, []byte, error) {
	const grows = 256 // more than any header put before a packet
	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+grows),
		Context: bpf.Context{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	verdict, err := p.Run(&opts)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return xdpAction(verdict), opts.DataOut, nil
}
