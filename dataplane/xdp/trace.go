package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
)

// TraceRequest is a frame, and where it is to come in.
type TraceRequest struct {
	// Interface is one of the data plane's; empty for its first.
	Interface string `json:"interface,omitempty"`
	// Frame begins with an Ethernet header; a destination of zeros stands for
	// the interface's own address.
	Frame []byte `json:"frame"`
}

// Trace is what the program would do with a frame, and why.
type Trace struct {
	Interface string      `json:"interface"`
	Steps     []TraceStep `json:"steps"`
	// Verdict is XDP_PASS and so on, Drop the reason of a drop; both where an
	// answer leaves in place of what is dropped.
	Verdict string `json:"verdict"`
	Drop    string `json:"drop,omitempty"`
	// In is the frame as it came, Out as it is afterwards.
	In  []byte `json:"in"`
	Out []byte `json:"out"`
	// Would is what the packet would change in what the balancer remembers,
	// besides counters. The trace has changed it in copies only.
	Would []string `json:"would,omitempty"`
	// Attached names the program that is attached to the interface, which a
	// trace does not run.
	Attached string `json:"attached"`
}

// TraceStep is one decision.
type TraceStep struct {
	// Note is its kind, as in enum trace_kind: "frontend".
	Note string `json:"note"`
	Text string `json:"text"`
}

// ErrFrame is what Trace answers to a frame that the kernel does not take.
var ErrFrame = errors.New("no frame for a test run")

// leastFrame is the kernel's (net/bpf/test_run.c): an Ethernet header.
const leastFrame = 14

// ErrTracing is what TracePacket answers when others have been tracing for a while.
var ErrTracing = errors.New("other traces run: try again")

// TracePacket feeds a frame to the program, compiled so that it tells its
// decisions. That one reads the maps of the program that is attached and writes
// none of them; it works on copies of the entries that the packet needs, which
// nothing else sees. One trace runs at a time. name gives a frontend's Service.
func (d *DataPlane) TracePacket(ctx context.Context, r TraceRequest, name func(service.Key) string) (t Trace, err error) {
	if err := d.missing.Err(features.TestRun); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	if len(r.Frame) < leastFrame {
		return t, fmt.Errorf("trace: %w: %d bytes are less than an Ethernet header", ErrFrame, len(r.Frame))
	}
	if t.Interface = r.Interface; t.Interface == "" {
		t.Interface = d.config.Interfaces[0]
	}
	index, err := d.ifindex(t.Interface)
	if err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	t.In = bytes.Clone(r.Frame)
	if nic, err := net.InterfaceByIndex(index); err == nil && bytes.Equal(t.In[:6], make([]byte, 6)) {
		copy(t.In, nic.HardwareAddr)
	}
	if !lockSoon(ctx, &d.tracing) {
		return t, fmt.Errorf("trace: %w", ErrTracing)
	}
	defer d.tracing.Unlock()
	if err := d.trace(&t, index, name); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

func (d *DataPlane) trace(t *Trace, ifindex int, name func(service.Key) string) error {
	program, err := d.loadTracer()
	if err != nil {
		return err
	}
	defer program.Close()
	verdict, out, err := d.runTracer(program, t.In, ifindex)
	if err != nil {
		return err
	}
	t.Verdict, t.Out = verdict.String(), out
	var events tracerTraceList
	if err := program.Events.Get(&events); err != nil {
		return fmt.Errorf("read the trace events: %w", err)
	}
	if events.Uncopied > 0 {
		return fmt.Errorf("there is no room for copies of %d entries that this packet needs", events.Uncopied)
	}
	w := &traceWords{d: d, t: t, name: name}
	w.read(events)
	t.Attached, err = d.attachedTo(t.Interface)
	return err
}

// loadedTracer are the program that tells, and what is its own.
type loadedTracer struct {
	Balancer       *ebpf.Program  `ebpf:"balancer"`
	Steps          *ebpf.Map      `ebpf:"steps"`
	Fragments      *ebpf.Map      `ebpf:"fragments"`
	Events         *ebpf.Variable `ebpf:"trace_events"`
	FragmentWanted *ebpf.Variable `ebpf:"fragment_wanted"`
}

// Close lets go of it, and of all that it has written.
func (o *loadedTracer) Close() {
	o.Balancer.Close()
	o.Steps.Close()
	o.Fragments.Close()
}

// tracerPrivate are the maps that the program writes and that need no copy of what
// is there: what is at work on a CPU, and fragments (runTracer). What it writes of
// the other maps it copies by itself (bpf/balancer/copy.h).
var tracerPrivate = []string{
	balancerMapSteps, balancerMapFragments,
	balancerMapSlowScratch, balancerMapHandoverScratch, balancerMapSynScratch, balancerMapNatScratch, balancerMapOlderOwners, balancerMapAuthScratch,
}

// tracerSpec gives the object with its private maps. Of fragments it needs the one
// that the packet is, and the first of its datagram.
func (d *DataPlane) tracerSpec() (*ebpf.CollectionSpec, error) {
	spec, err := d.specOf(loadTracer)
	if err != nil {
		return nil, err
	}
	spec.Maps[balancerMapFragments].Type = ebpf.Hash
	spec.Maps[balancerMapFragments].MaxEntries = 2
	d.stripLate(spec)
	fillSteps(spec)
	return spec, nil
}

func (d *DataPlane) loadTracer() (*loadedTracer, error) {
	spec, err := d.tracerSpec()
	if err != nil {
		return nil, err
	}
	var o loadedTracer
	if err := d.loadAgain(&o, spec, tracerPrivate...); err != nil {
		return nil, fmt.Errorf("load the program that tells: %w", err)
	}
	return &o, nil
}

// runTracer runs the program; a second time where it looks for a datagram's first
// fragment, and the balancer has that. No other entry is copied here: reading
// this one in the program would mark it as used, and so keep it for longer.
func (d *DataPlane) runTracer(o *loadedTracer, frame []byte, ifindex int) (xdpAction, []byte, error) {
	verdict, out, err := testRun(o.Balancer, frame, ifindex)
	if err != nil {
		return 0, nil, err
	}
	var wanted balancerFragmentKey
	if err := o.FragmentWanted.Get(&wanted); err != nil {
		return 0, nil, fmt.Errorf("read which fragment is wanted: %w", err)
	}
	var first balancerFragment
	err = ebpf.ErrKeyNotExist
	if wanted != (balancerFragmentKey{}) {
		err = d.kernel.Fragments.Lookup(wanted, &first)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return verdict, out, nil
	}
	if err == nil {
		err = errors.Join(o.Fragments.Put(wanted, first), o.Events.Set(tracerTraceList{}))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("copy the first fragment: %w", err)
	}
	return testRun(o.Balancer, frame, ifindex)
}

// attachedTo names the program that is attached to an interface.
func (d *DataPlane) attachedTo(name string) (string, error) {
	own, err := d.kernel.Balancer.Info()
	if err != nil {
		return "", err
	}
	attached, err := d.links[name].Info()
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", name, err)
	}
	id, _ := own.ID()
	if attached.Program != id {
		return fmt.Sprintf("program %d, which is not this agent's (%d): a capture runs, or another tool has replaced it", attached.Program, id), nil
	}
	return fmt.Sprintf("program %d, of the same source as the traced one; it was not run", id), nil
}

// xdpAction is what a program returns, enum xdp_action of linux/bpf.h.
type xdpAction uint32

func (a xdpAction) String() string {
	names := []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}
	return nameOfNumber(names, uint32(a))
}

// testContext is struct xdp_md of linux/bpf.h.
type testContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// testRun runs a program on a frame that came in by an interface. It works in
// the network namespace of the calling thread.
func testRun(p *ebpf.Program, frame []byte, ifindex int) (xdpAction, []byte, error) {
	const grows = 256 // more than any header that is put before a packet
	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+grows),
		Context: testContext{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	verdict, err := p.Run(&opts)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return xdpAction(verdict), opts.DataOut, nil
}
