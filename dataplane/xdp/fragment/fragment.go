// Package fragment reunites fragments that arrive before the first of their datagram with it:
// the program hands them over, and gets them back when it has the first. It does not parse
// packets. Its tests, with the program, are in dataplane/xdp.
package fragment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/clock"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/ownns"
)

const (
	// tick is the interval at which the program's fragment table is checked for
	// the first fragment.
	tick = 2 * time.Millisecond
	// Life is how long a fragment waits for its first. Packets of one datagram
	// are reordered by less than this.
	Life = 100 * time.Millisecond
	// maxOrphans limits the memory of waiting fragments: 3 MiB.
	maxOrphans = 1024
	// Lost is the name of DROP_FRAGMENT_LOST.
	Lost = "fragment-lost"
	// fresh is FRAGMENT_NS of bpf/balancer/fragment.h.
	fresh = 2 * time.Second
)

// Orphanage holds fragments that arrived before their datagram's first one, and reinjects
// them into the program when that arrives. If it does not, they are reinjected too,
// marked as lost, so that the program drops and counts them.
type Orphanage struct {
	reader  *ringbuf.Reader
	table   *ebpf.Map
	program *ebpf.Program
	netns   *os.File
	ended   chan struct{}
	missed  atomic.Uint64 // because reinjection failed
}

// Start starts handling fragments in the calling thread's network namespace.
func Start(maps *bpf.BalancerMaps, program *ebpf.Program) (*Orphanage, error) {
	netns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("xdp: fragments: %w", err)
	}
	reader, err := ringbuf.NewReader(maps.Orphans)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("xdp: fragments: read the ring buffer: %w", err), netns.Close())
	}
	o := &Orphanage{reader: reader, table: maps.Fragments, program: program, netns: netns, ended: make(chan struct{})}
	began := make(chan error)
	go o.run(began)
	if err := <-began; err != nil {
		return nil, errors.Join(fmt.Errorf("xdp: fragments: %w", err), o.Close())
	}
	return o, nil
}

// Close stops it if it was started. Waiting fragments are lost.
func (o *Orphanage) Close() error {
	if o == nil {
		return nil
	}
	err := o.reader.Close()
	<-o.ended
	return errors.Join(err, o.netns.Close())
}

// Missed counts the lost fragments that the program could not count.
func (o *Orphanage) Missed() uint64 { return o.missed.Load() }

// run never unlocks its thread, which is in another namespace than the others and ends
// with it.
func (o *Orphanage) run(began chan<- error) {
	defer close(o.ended)
	runtime.LockOSThread()
	err := ownns.Enter(int(o.netns.Fd()))
	began <- err
	if err != nil {
		return
	}
	var waiting []bpf.BalancerOrphan
	var record ringbuf.Record
	for {
		o.reader.SetDeadline(deadline(len(waiting)))
		switch err := o.reader.ReadInto(&record); {
		case err == nil:
			waiting = o.take(waiting, record.RawSample)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return // closed
		}
		waiting = o.look(waiting)
	}
}

// deadline returns when to check again: never if nothing waits.
func deadline(waiting int) time.Time {
	if waiting == 0 {
		return time.Time{}
	}
	return time.Now().Add(tick)
}

// take adds a fragment to the waiting ones.
func (o *Orphanage) take(waiting []bpf.BalancerOrphan, sample []byte) []bpf.BalancerOrphan {
	var f bpf.BalancerOrphan
	if binary.Read(bytes.NewReader(sample), binary.NativeEndian, &f) != nil || f.Len > uint32(len(f.Frame)) {
		return waiting
	}
	if len(waiting) == maxOrphans {
		o.lose(&f)
		return waiting
	}
	return append(waiting, f)
}

// look reinjects fragments whose first has arrived, gives up those that waited too long,
// and returns the rest.
func (o *Orphanage) look(waiting []bpf.BalancerOrphan) []bpf.BalancerOrphan {
	now := clock.Now()
	rest := waiting[:0]
	for i := range waiting {
		f := &waiting[i]
		var first bpf.BalancerFragment
		err := o.table.Lookup(&f.Key, &first)
		switch {
		case err == nil && now-time.Duration(first.Seen) < fresh:
			o.bringBack(f)
		case now-time.Duration(f.Seen) > Life:
			o.lose(f)
		default:
			rest = append(rest, *f)
		}
	}
	return rest
}

// lose marks the datagram as lost, unless its first fragment has just arrived, and lets
// the program count it.
func (o *Orphanage) lose(f *bpf.BalancerOrphan) {
	gone := bpf.BalancerFragment{Seen: uint64(clock.Now()), Lost: 1}
	stale := bpf.BalancerFragment{}
	if o.table.Lookup(&f.Key, &stale) == nil && clock.Now()-time.Duration(stale.Seen) >= fresh {
		// It would prevent the mark. If the first fragment arrives between these
		// two calls, only that datagram is lost.
		if err := o.table.Delete(&f.Key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			o.missed.Add(1)
			return
		}
	}
	if err := o.table.Update(&f.Key, &gone, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		o.missed.Add(1)
		return
	}
	o.bringBack(f)
}

// bringBack runs the program on the frame as if it had just arrived on its interface, and
// the kernel executes the verdict (Linux 5.18: live frames). This fails if the interface
// no longer exists.
func (o *Orphanage) bringBack(f *bpf.BalancerOrphan) {
	if _, err := o.program.Run(&ebpf.RunOptions{
		Data: f.Frame[:f.Len], Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		Context: bpf.Context{DataEnd: f.Len, IngressIfindex: f.Ifindex},
	}); err != nil {
		o.missed.Add(1)
	}
}
