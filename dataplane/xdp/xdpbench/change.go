package xdpbench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/service"
)

// changes measures how long it takes to write that one of a hundred servers is
// another now, and how many slots of the others move: with servers whose age
// nobody tells, and with ones of which the latest is always the youngest.
func (m *meter) changes(ctx context.Context) error {
	for _, ages := range []bool{false, true} {
		name := "one of 100 servers changed"
		if ages {
			name += ", with ages"
		}
		if !m.wanted(name) {
			continue
		}
		if err := m.change(ctx, name, ages); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// hundred is a frontend of a hundred servers that began at three different
// times, so that most slots name an older owner, or nobody knows when.
func hundred(ages bool) dataplane.Frontend {
	f := tunnelFrontend()
	for i := range f.Backends {
		if ages {
			f.Backends[i].Since = time.Unix(int64(1700000000+i/49), 0)
		}
	}
	return f
}

func (m *meter) change(ctx context.Context, name string, ages bool) (err error) {
	d, err := m.open(xdp.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	f := hundred(ages)
	if err := d.Upsert(f); err != nil {
		return err
	}
	before, err := ringOwners(d.DataPlane)
	if err != nil {
		return err
	}
	const times = 100
	var took, moved []float64
	for i := range times {
		one := &f.Backends[i%len(f.Backends)]
		one.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 21, byte(i / 100), byte(i%100 + 1)}), 80)
		if ages {
			one.Since = time.Unix(int64(1800000000+i), 0)
		}
		want := f
		want.Backends = service.SortBackends(slices.Clone(f.Backends))
		began := time.Now()
		if err := errors.Join(ctx.Err(), d.Upsert(want)); err != nil {
			return err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
		after, err := ringOwners(d.DataPlane)
		if err != nil {
			return err
		}
		moved = append(moved, 100*movedShare(before, after))
		before = after
	}
	worst := bench.Plain(name+": others' slots moved, at most", "%", slices.Max(moved)).AtMost(1)
	worst.Runs = times
	m.report.Rows = append(m.report.Rows, bench.Plain(name+": written in", "ms", took...).AtMost(2), worst)
	return nil
}

// ringOwners reads who owns each slot of the only ring, which lies at the
// beginning of the only segment.
func ringOwners(d *xdp.DataPlane) (owners []uint32, err error) {
	_, pins, err := d.Programs()
	if err != nil {
		return nil, err
	}
	segments, err := ringSegments(pins)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll(segments)) }()
	keys, words := make([]uint32, ringSize), make([]uint64, ringSize)
	var cursor ebpf.MapBatchCursor
	if _, err := segments[0].BatchLookup(&cursor, keys, words, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read the ring: %w", err)
	}
	for _, w := range words {
		owners = append(owners, uint32(w))
	}
	return owners, nil
}

// movedShare gives the share of the slots that changed from one server to
// another though both were there before and after.
func movedShare(before, after []uint32) float64 {
	had, has := map[uint32]bool{}, map[uint32]bool{}
	for i := range before {
		had[before[i]], has[after[i]] = true, true
	}
	moved := 0
	for i := range before {
		if before[i] != after[i] && has[before[i]] && had[after[i]] {
			moved++
		}
	}
	return float64(moved) / float64(len(before))
}
