package xdp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/internal/features"
)

// Event is one packet that was dropped.
type Event struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	// Interface is where it came in; a number where that is not ours.
	Interface string `json:"interface"`
	CPU       int    `json:"cpu"`
	// Length is the frame's in bytes, Data its beginning, as it was when it
	// was dropped.
	Length int    `json:"length"`
	Data   []byte `json:"data"`
}

// ErrFollowed is what Events answers while somebody else follows drops.
var ErrFollowed = errors.New("drops are followed already: end that first")

// readPause is how long it takes to notice that nobody reads any more.
const readPause = 200 * time.Millisecond

// noSample is set.sample where nobody follows.
const noSample = ^uint32(0)

// Events gives samples of the packets that are dropped, by chance one of
// sampleEvery (rounded up to a power of two; 1 is all), until ctx ends; then
// the channel closes. What comes faster than it is fetched is left out.
func (d *DataPlane) Events(ctx context.Context, sampleEvery uint32) (<-chan Event, error) {
	if err := d.missing.Err(features.DropEvents); err != nil {
		return nil, fmt.Errorf("drops cannot be followed: %w", err)
	}
	if !lockSoon(ctx, &d.following) {
		return nil, fmt.Errorf("xdp: %w", ErrFollowed)
	}
	reader, err := ringbuf.NewReader(d.kernel.DropEvents)
	if err != nil {
		d.following.Unlock()
		return nil, fmt.Errorf("xdp: read dropped packets: %w", err)
	}
	if err := d.setSample(sampleMask(sampleEvery)); err != nil {
		reader.Close()
		d.following.Unlock()
		return nil, err
	}
	f := &follower{reader: reader, boot: clock.Zero(), reasons: d.reasons, names: d.interfaceNames(), out: make(chan Event)}
	go func() {
		defer d.following.Unlock()
		defer close(f.out)
		defer reader.Close()
		f.run(ctx)
		// It fails where the data plane is closed, and has let go of all.
		_ = d.setSample(noSample)
	}()
	return f.out, nil
}

// lockSoon waits a moment for whoever has the lock: it may have been told to end,
// and be about to.
func lockSoon(ctx context.Context, mu *sync.Mutex) bool {
	for end := time.Now().Add(5 * readPause); !mu.TryLock(); time.Sleep(readPause / 20) {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}

// sampleMask gives the bits of a random number that must be clear.
func sampleMask(every uint32) uint32 {
	if every <= 1 {
		return 0
	}
	return 1<<min(bits.Len32(every-1), 31) - 1
}

func (d *DataPlane) setSample(mask uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.settings
	next.Sample = mask
	return d.putSettings(next)
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
		// Set while Read waits, it would wait for Read.
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
	var r balancerDropEvent
	if _, err := binary.Decode(b, binary.NativeEndian, &r); err != nil {
		return Event{}, false
	}
	e := Event{
		Time: f.boot.Add(time.Duration(r.Time)), Reason: nameOfNumber(f.reasons, r.Reason), Interface: f.names[int(r.Ifindex)],
		CPU: int(r.Cpu), Length: int(r.Length), Data: r.Data[:min(int(r.Length), len(r.Data))],
	}
	if e.Interface == "" {
		e.Interface = fmt.Sprint(r.Ifindex)
	}
	return e, true
}

// nameOfNumber gives the name, or the number where it has none.
func nameOfNumber(names []string, n uint32) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprint(n)
}

// DropsByCPU gives the packets dropped, by the name of the reason, and of each
// what the CPUs have counted.
func (d *DataPlane) DropsByCPU() (map[string][]uint64, error) {
	all := map[string][]uint64{}
	for i, name := range d.reasons {
		var perCPU []uint64
		if err := d.kernel.Drops.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("xdp: read drops: %w", err)
		}
		all[name] = perCPU
	}
	return all, nil
}
