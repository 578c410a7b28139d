package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/service"
)

// TraceRequest is a frame, and where it is to come in.
type TraceRequest struct {
	// Interface is one of the data plane's; empty for its first.
	Interface string `json:"interface,omitempty"`
	// Frame begins with an Ethernet header; a destination of zeros stands for
	// the interface's own address.
	Frame []byte `json:"frame"`
}

// Trace is what the program does with a frame, and why.
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
	// Changed is what this run has changed in what the balancer remembers.
	Changed []string `json:"changed,omitempty"`
	// Attached compares with the program that is attached.
	Attached string `json:"attached"`
}

// TraceStep is one decision.
type TraceStep struct {
	// Note is its kind, as enum note_kind has it: "frontend".
	Note string `json:"note"`
	Text string `json:"text"`
}

// ErrFrame is what Trace answers to a frame that the kernel does not take.
var ErrFrame = errors.New("no frame for a test run")

// leastFrame is the kernel's (net/bpf/test_run.c): an Ethernet header.
const leastFrame = 14

// TracePacket feeds a frame to the program, loaded once more so that it tells
// its decisions, on the maps of the one that is attached. What that counts
// stays as it is; flows that it remembers do not, which Changed says. name gives
// a frontend's Service.
func (d *DataPlane) TracePacket(r TraceRequest, name func(service.Key) string) (t Trace, err error) {
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
	v, err := d.newVariant(func(spec *ebpf.CollectionSpec) error {
		return spec.Variables[balancerVarTracing].Set(true)
	}, balancerMapDrops, balancerMapFrontendCounts, balancerMapServerCpu)
	if err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if !d.handsOver.Load() {
		if err := v.kernel.Steps.Delete(uint32(balancerStepSTEP_HANDOVER)); err != nil {
			return t, fmt.Errorf("trace: %w", err)
		}
	}
	verdict, out, err := testRun(v.kernel.Balancer, t.In, index)
	if err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	t.Verdict, t.Out = verdict.String(), out
	var notes balancerNotes
	if err := v.kernel.Notes.Get(&notes); err != nil {
		return t, fmt.Errorf("trace: read the notes: %w", err)
	}
	w := &traceWords{d: d, v: v, t: &t, name: name}
	w.read(notes)
	t.Attached, err = d.compare(&t, verdict, index, w.stateful)
	return t, err
}

// compare runs the attached program on the same frame, where that changes
// nothing but counters.
func (d *DataPlane) compare(t *Trace, verdict xdpAction, index int, stateful bool) (string, error) {
	if stateful {
		return "not run on it: it would count as one more packet of a flow that is remembered", nil
	}
	v, out, err := testRun(d.kernel.Balancer, t.In, index)
	switch {
	case err != nil:
		return "", fmt.Errorf("trace: the attached program: %w", err)
	case v != verdict:
		return fmt.Sprintf("decides otherwise: %s", v), nil
	case !bytes.Equal(out, t.Out):
		return fmt.Sprintf("makes other bytes of it: %x", out), nil
	}
	return "gives the same verdict and the same bytes (it has counted the packet)", nil
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
