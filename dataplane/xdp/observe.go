package xdp

import (
	"context"
	"io"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/capture"
	"github.com/fairlead/fairlead/dataplane/xdp/observe"
)

// What observing a data plane returns.
type (
	Trace        = observe.Trace
	TraceRequest = observe.TraceRequest
	TraceStep    = observe.TraceStep
	Event        = observe.Event
)

func (d *DataPlane) newObserver() *observe.Observer {
	return observe.New(observe.Options{
		Program: d.program, Links: d.links, Reasons: d.reasons, States: d.flows.States, Frontend: d.frontendOf, Sample: d.setSample,
	})
}

// TracePacket runs the program, compiled to report its decisions, on a frame. That
// program reads the attached program's maps without writing them: it works on private
// copies of the entries that the packet needs. One trace runs at a time. name returns a
// frontend's Service.
func (d *DataPlane) TracePacket(ctx context.Context, r TraceRequest, name func(service.Key) string) (Trace, error) {
	return d.observer.Trace(ctx, r, name)
}

// Capture writes packets as received and as returned by the attached program to w, as
// pcapng, until ctx ends or o.Count packets are written. Meanwhile a copy of the program
// with reporting replaces it; neither replacement loses packets. It may run concurrently
// with everything else.
func (d *DataPlane) Capture(ctx context.Context, w io.Writer, o capture.Options) (capture.Summary, error) {
	return d.observer.Capture(ctx, w, o)
}

// Events returns samples of dropped packets, randomly one of sampleEvery (rounded up to a
// power of two; 1 is all), until ctx ends, when the channel is closed. Events that arrive
// faster than they are read are lost.
func (d *DataPlane) Events(ctx context.Context, sampleEvery uint32) (<-chan Event, error) {
	return d.observer.Drops(ctx, sampleEvery)
}

// DropsByCPU returns the dropped packets by reason name, with one count per CPU.
func (d *DataPlane) DropsByCPU() (map[string][]uint64, error) { return d.observer.DropsByCPU() }

// frontendOf returns the frontend of a number.
func (d *DataPlane) frontendOf(id uint32) (service.Key, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.numbered(id); h != nil {
		return h.key, true
	}
	return service.Key{}, false
}

// numbered returns the frontend with a number, or nil.
func (d *DataPlane) numbered(id uint32) *programmed {
	for _, h := range d.programmed {
		if h.value.Id == id {
			return h
		}
	}
	return nil
}

func (d *DataPlane) setSample(mask uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.settings
	next.Sample = mask
	return d.putSettings(next)
}
