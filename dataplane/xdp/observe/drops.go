package observe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/features"
)

// Event is one dropped packet.
type Event struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	// Interface is where it arrived; a number if it is not ours.
	Interface string `json:"interface"`
	CPU       int    `json:"cpu"`
	// Length is the frame's in bytes, Data its beginning, at the time of the drop.
	Length int    `json:"length"`
	Data   []byte `json:"data"`
}

// ErrFollowed is the error of Events while another follower is active.
var ErrFollowed = errors.New("another client follows drops: stop it first")

// noSample is set.sample without a follower.
const noSample = ^uint32(0)

// Drops returns samples of dropped packets, randomly one of sampleEvery (rounded up to a
// power of two; 1 is all), until ctx ends, when the channel is closed. Events that arrive
// faster than they are read are lost.
func (o *Observer) Drops(ctx context.Context, sampleEvery uint32) (<-chan Event, error) {
	if err := o.program.Missing.Err(features.DropEvents); err != nil {
		return nil, fmt.Errorf("cannot follow drops: %w", err)
	}
	if !lockSoon(ctx, &o.following) {
		return nil, fmt.Errorf("xdp: %w", ErrFollowed)
	}
	reader, err := ringbuf.NewReader(o.program.DropEvents)
	if err != nil {
		o.following.Unlock()
		return nil, fmt.Errorf("xdp: read dropped packets: %w", err)
	}
	if err := o.sample(sampleMask(sampleEvery)); err != nil {
		reader.Close()
		o.following.Unlock()
		return nil, err
	}
	f := &follower{reader: reader, boot: clock.Zero(), reasons: o.reasons, names: o.links.Names(), out: make(chan Event)}
	go func() {
		defer o.following.Unlock()
		defer close(f.out)
		defer reader.Close()
		f.run(ctx)
		// It fails if the data plane is closed, which has released everything.
		_ = o.sample(noSample)
	}()
	return f.out, nil
}

// sampleMask returns the bits of a random number that must be clear.
func sampleMask(every uint32) uint32 {
	if every <= 1 {
		return 0
	}
	return 1<<min(bits.Len32(every-1), 31) - 1
}

// follower reads the ring buffer.
type follower struct {
	reader  *ringbuf.Reader
	boot    time.Time
	reasons []string
	names   map[int]string
	out     chan Event
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		// During Read, SetDeadline would block until Read returns.
		f.reader.SetDeadline(time.Now().Add(readPause))
		r, err := f.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return
		}
		e, ok := f.decode(r.RawSample)
		if !ok {
			continue
		}
		select {
		case f.out <- e:
		case <-ctx.Done():
		}
	}
}

func (f *follower) decode(b []byte) (Event, bool) {
	var r bpf.BalancerDropEvent
	if _, err := binary.Decode(b, binary.NativeEndian, &r); err != nil {
		return Event{}, false
	}
	e := Event{
		Time: f.boot.Add(time.Duration(r.Time)), Reason: bpf.NameOf(f.reasons, r.Reason), Interface: f.names[int(r.Ifindex)],
		CPU: int(r.Cpu), Length: int(r.Length), Data: r.Data[:min(int(r.Length), len(r.Data))],
	}
	if e.Interface == "" {
		e.Interface = fmt.Sprint(r.Ifindex)
	}
	return e, true
}

// DropsByCPU returns the dropped packets by reason name, with one count per CPU.
func (o *Observer) DropsByCPU() (map[string][]uint64, error) {
	all := map[string][]uint64{}
	for i, name := range o.reasons {
		var perCPU []uint64
		if err := o.program.Drops.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("xdp: read drops: %w", err)
		}
		all[name] = perCPU
	}
	return all, nil
}
