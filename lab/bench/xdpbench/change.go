package xdpbench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cputime"
)

// changeKind is a way in which a frontend with a hundred backends changes repeatedly.
type changeKind struct {
	name string
	ages bool // the backends have timestamps
	// steps are made one after the other. Each one gets the iteration i.
	steps []changeStep
}

type changeStep struct {
	name string
	make func(f *desired.Frontend, i int)
}

func changeKinds() []changeKind {
	fresh := func(i int) service.Backend {
		return service.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 21, byte(i / 100), byte(i%100 + 1)}), 80), Weight: 1}
	}
	at := func(i, minute int) time.Time { return time.Unix(1800000000+int64(i)*120+int64(minute)*60, 0) }
	return []changeKind{
		{"one of 100 servers replaced", false, []changeStep{
			{"", func(f *desired.Frontend, i int) { f.Backends[i%servers] = fresh(i) }},
		}},
		{"one of 100 servers, with ages", true, []changeStep{
			{", more", func(f *desired.Frontend, i int) {
				b := fresh(i)
				b.Since = at(i, 0)
				f.Backends = append(f.Backends, b)
			}},
			{", drains", func(f *desired.Frontend, i int) { f.Backends[0].Weight, f.Backends[0].Drained = 0, at(i, 1) }},
			{", gone", func(f *desired.Frontend, _ int) { f.Backends = f.Backends[1:] }},
		}},
	}
}

// changes measures how long it takes to program a change of one backend of a hundred, and
// how many slots of the other backends move.
func (m *meter) changes(ctx context.Context) error {
	for _, k := range changeKinds() {
		if !m.wanted(k.name) {
			continue
		}
		if err := m.change(ctx, k); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

func (m *meter) change(ctx context.Context, k changeKind) (err error) {
	d, err := m.Open(xdp.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	f := tunnelFrontend()
	for i := range f.Backends {
		if k.ages { // they started at three different times
			f.Backends[i].Since = time.Unix(int64(1700000000+i/49), 0)
		}
	}
	if err := d.Upsert(f); err != nil {
		return err
	}
	r, err := openRing(d.DataPlane)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	const times = 50
	took := make([][3][]float64, len(k.steps))
	for i := range times {
		for j, step := range k.steps {
			step.make(&f, i)
			one, err := r.write(ctx, d.DataPlane, f)
			if err != nil {
				return err
			}
			for n, figure := range one {
				took[j][n] = append(took[j][n], figure)
			}
		}
	}
	for j, step := range k.steps {
		name, moved := k.name+step.name, bench.Plain(k.name+step.name+": others' slots moved, at most", "%", slices.Max(took[j][2]))
		m.report.Rows = append(m.report.Rows, bench.Plain(name+": written in", "ms", took[j][0]...).AtMost(2),
			bench.Plain(name+": processors' time for it", "ms", took[j][1]...), moved.AtMost(1))
	}
	return nil
}

// write writes a frontend. It returns how many milliseconds that took, the CPU time in
// milliseconds, and the percentage of the slots of remaining backends that moved.
func (r *ringReader) write(ctx context.Context, d *xdp.DataPlane, f desired.Frontend) (took [3]float64, err error) {
	f.Backends = service.SortBackends(slices.Clone(f.Backends))
	cpu, began := cputime.Process(), time.Now()
	if err := errors.Join(ctx.Err(), d.Upsert(f)); err != nil {
		return took, err
	}
	took[0] = milliseconds(time.Since(began))
	took[1] = milliseconds(cputime.Process() - cpu)
	before := slices.Clone(r.owners)
	if err := r.read(); err != nil {
		return took, err
	}
	took[2] = 100 * movedShare(before, r.owners)
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// ringReader reads the owner of each slot of the only Maglev table, which is at the start
// of the only segment.
type ringReader struct {
	*ebpf.Map
	keys   []uint32
	words  []uint64
	owners []uint32
}

func openRing(d *xdp.DataPlane) (*ringReader, error) {
	_, pins, err := d.Programs()
	if err != nil {
		return nil, err
	}
	segments, err := RingSegments(pins)
	if err != nil {
		return nil, err
	}
	if len(segments) != 1 {
		return nil, errors.Join(fmt.Errorf("one ring lies in %d segments", len(segments)), CloseAll(segments))
	}
	r := &ringReader{segments[0], make([]uint32, ringSize), make([]uint64, ringSize), make([]uint32, ringSize)}
	return r, r.read()
}

func (r *ringReader) read() error {
	var cursor ebpf.MapBatchCursor
	if _, err := r.BatchLookup(&cursor, r.keys, r.words, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read the ring: %w", err)
	}
	for i, w := range r.words {
		r.owners[i] = uint32(w)
	}
	return nil
}

// movedShare returns the share of slots that moved from one backend to another although
// both existed before and after.
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
