package observe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/capture"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/netorder"
)

// ErrCapturing is the error of Capture while another capture runs.
var ErrCapturing = errors.New("another capture is running: stop it first")

// Capture writes packets as received and as returned by the attached program to w, as
// pcapng, until ctx ends or what.Count packets are written. Meanwhile a copy of the program
// with reporting replaces it; neither replacement loses packets. It may run concurrently
// with everything else.
func (o *Observer) Capture(ctx context.Context, w io.Writer, what capture.Options) (s capture.Summary, err error) {
	if err := errors.Join(what.Validate(), o.program.Missing.Err(features.Capture)); err != nil {
		return s, fmt.Errorf("capture: %w", err)
	}
	index, err := o.links.Index(what.Interface)
	if err != nil {
		return s, fmt.Errorf("capture: %w", err)
	}
	if !lockSoon(ctx, &o.capturing) {
		return s, fmt.Errorf("capture: %w", ErrCapturing)
	}
	defer o.capturing.Unlock()
	watch, err := o.Watch(what, index)
	if err != nil {
		return s, fmt.Errorf("capture: %w", err)
	}
	defer func() { err = errors.Join(err, watch.Close()) }()
	if err := o.links.Swap(watch.Program.Balancer); err != nil {
		return s, errors.Join(fmt.Errorf("capture: %w", err), o.links.Swap(o.program.Balancer))
	}
	defer func() { err = errors.Join(err, o.links.Swap(o.program.Balancer)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kept := make(chan error, 1)
	go func() {
		kept <- watch.keep(ctx)
		cancel()
	}()
	defer func() {
		cancel()
		err = errors.Join(err, <-kept)
	}()
	return capture.Write(ctx, w, watch, o.links.Names(), what)
}

// Watcher is a program that reports its packets, and the reader for them.
type Watcher struct {
	Program *bpf.BalancerObjects
	reader  *perf.Reader
	boot    time.Time
	lost    uint64
}

// watchLease is how long a program keeps reporting after the last renewal.
const watchLease = 5 * time.Second

// Renew extends the program's lease from now on.
func (w *Watcher) Renew(lease time.Duration) error {
	return w.Program.WatchUntil.Set(uint64(clock.Now() + lease))
}

// keep renews until ctx ends.
func (w *Watcher) keep(ctx context.Context) error {
	tick := time.NewTicker(watchLease / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.Renew(watchLease); err != nil {
			return fmt.Errorf("capture: renew: %w", err)
		}
	}
}

// perfBytes is the size of each CPU's buffer.
const perfBytes = 1 << 20

// Watch loads a program that reports its packets, for Capture, which attaches it.
func (o *Observer) Watch(what capture.Options, ifindex int) (*Watcher, error) {
	reporting, err := o.program.Variant(func(spec *ebpf.CollectionSpec) error {
		return errors.Join(
			spec.Variables[bpf.BalancerVarWatching].Set(true),
			spec.Variables[bpf.BalancerVarWatchFilter].Set(watchFilter(what, ifindex)),
		)
	}, bpf.BalancerMapWatched, bpf.BalancerMapWatchCurrent)
	if err != nil {
		return nil, err
	}
	w := &Watcher{Program: reporting, boot: clock.Zero()}
	// If this process is killed, the program stays until the next agent starts.
	_, err = o.program.PinTable(reporting.Steps)
	if err == nil {
		err = w.Renew(watchLease)
	}
	if err == nil {
		w.reader, err = perf.NewReader(reporting.Watched, perfBytes)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close must be called after the program is detached.
func (w *Watcher) Close() error {
	err := errors.Join(w.Program.Steps.Unpin(), w.Program.Close())
	if w.reader != nil {
		err = errors.Join(err, w.reader.Close())
	}
	return err
}

func watchFilter(o capture.Options, ifindex int) bpf.BalancerWatchFilter {
	f := bpf.BalancerWatchFilter{
		Ifindex: uint32(ifindex), Port: netorder.Port(o.Port), Sample: uint32(o.Sample), Snaplen: uint32(o.Snaplen),
	}
	if o.Snaplen == 0 {
		f.Snaplen = capture.MaxSnaplen
	}
	if o.VIP.IsValid() {
		f.Vip.Word = netorder.Words(o.VIP)
	}
	if o.Client.IsValid() {
		f.Client.Word = netorder.Words(o.Client)
	}
	if o.Before {
		f.Before = 1
	}
	if o.After {
		f.After = 1
	}
	return f
}

// Next implements capture.Source, for one reader.
func (w *Watcher) Next(ctx context.Context) (capture.Frame, error) {
	for {
		// During Read, SetDeadline would block until Read returns.
		w.reader.SetDeadline(time.Now().Add(readPause))
		r, err := w.reader.Read()
		if ctx.Err() != nil {
			return capture.Frame{}, ctx.Err()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return capture.Frame{}, fmt.Errorf("read: %w", err)
		}
		w.lost += r.LostSamples
		if f, ok := w.decode(r); ok {
			return f, nil
		}
	}
}

// decode reads a record and the frame after it.
func (w *Watcher) decode(p perf.Record) (capture.Frame, bool) {
	var r bpf.BalancerWatchRecord
	n, err := binary.Decode(p.RawSample, binary.NativeEndian, &r)
	if err != nil || int(r.Caught) > len(p.RawSample)-n {
		return capture.Frame{}, false // only a count of lost records
	}
	return capture.Frame{
		Time: w.boot.Add(time.Duration(r.Time)), CPU: p.CPU, Number: r.Number, Interface: int(r.Ifindex), Length: int(r.Length),
		After: r.When == bpf.BalancerWatchWhenWATCH_AFTER, Verdict: capture.Verdict(r.Verdict), Data: p.RawSample[n:][:r.Caught],
	}, true
}

// Lost implements capture.Source.
func (w *Watcher) Lost() uint64 { return w.lost }
