package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
	"github.com/fairlead/fairlead/lab/bench/xdpbench/measure"
)

// workload measures one workload with all programs that take part.
func (m *meter) workload(ctx context.Context, s scenario, w workload, loaded []*program) error {
	var all []*program
	for _, p := range loaded {
		if !p.takesPart(w) {
			continue
		}
		if err := errors.Join(ctx.Err(), p.warm(s, w)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		all = append(all, p)
	}
	before, err := begun(all)
	if err != nil {
		return err
	}
	took, err := m.rounds(ctx, w, all)
	if err != nil {
		return err
	}
	after, err := begun(all)
	if err != nil {
		return err
	}
	for i, p := range all {
		if err := p.judge(w); err != nil {
			return err
		}
		if p.begun != nil {
			m.report.Note("%s: %s: %.2f %% of the packets began a flow", w.name, p.name, 100*float64(after[i]-before[i])/float64(p.rig.Verdicts()[w.want]))
		}
	}
	m.rows(w, all, took)
	if m.o.Growth {
		m.point(w.curve, all, took)
		return nil
	}
	return m.events(w, all)
}

// begun returns how many flows have begun with each program.
func begun(all []*program) ([]uint64, error) {
	sums := make([]uint64, len(all))
	for i, p := range all {
		if p.begun == nil {
			continue
		}
		var err error
		if sums[i], err = p.begun(); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return sums, nil
}

// rounds measures the programs in alternation. The order is reversed every other round.
func (m *meter) rounds(ctx context.Context, w workload, all []*program) (map[string][]float64, error) {
	took := map[string][]float64{}
	for round := range m.o.Rounds {
		for i := range all {
			if round%2 == 1 {
				i = len(all) - 1 - i
			}
			ns, err := all[i].turn(w)
			if err := errors.Join(ctx.Err(), err); err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			took[all[i].name] = append(took[all[i].name], ns)
		}
	}
	return took, nil
}

// floorOf returns the floor of one of our programs.
func (p *program) floorOf(w workload) string {
	if p.table {
		return xdpbench.FloorFlows
	}
	return w.floor
}

// rows adds the time of each program, and the comparisons with floors and peers.
func (m *meter) rows(w workload, all []*program, took map[string][]float64) {
	add := func(r bench.Row) { m.report.Rows = append(m.report.Rows, r) }
	overs := map[string]bench.Ratio{}
	for _, p := range all {
		row := bench.Plain(w.name+": "+p.name, "ns/packet", took[p.name]...)
		if p.ours {
			overs[p.name] = bench.RatioTo(p.floorOf(w), took[p.name], took[p.floorOf(w)])
			row.Over = []bench.Ratio{overs[p.name]}
		}
		add(row)
	}
	for _, p := range all {
		if !p.ours {
			continue
		}
		g, over := w.goals[p.name], overs[p.name]
		if g.floor > 0 {
			add(bench.OverFloor(w.name+": "+p.name+" / floor", bench.UnitTimes, took[p.name], over).AtMost(g.floor))
		}
		for _, peer := range all {
			if peer.ours || peer.floor || peer.name == katranBypass && p.table {
				continue
			}
			row := bench.TimesFaster(w.name+": "+peer.name+" / "+p.name, peer.name, took[p.name], took[peer.name])
			add(m.aim(row, g, peer.name == katranBypass, over, took[peer.name]))
		}
	}
	if len(m.peers) > 0 && w.goals[secondChance].either {
		m.eitherFloor(w)
	}
}

// aim sets the goal of a comparison. A peer without a flow table only has to be behind.
func (m *meter) aim(row bench.Row, g goal, bypass bool, over bench.Ratio, peer []float64) bench.Row {
	if bypass || g.slowPeer > 0 && bench.SpreadOf(peer).Median < g.slowPeer*over.Raw.Median {
		return row.AtLeast(1)
	}
	if g.ratio == 0 {
		return row
	}
	return row.AtLeast(g.ratio)
}

// eitherFloor lets second chance meet one of two goals: far ahead of the peer, or close to
// its floor.
func (m *meter) eitherFloor(w workload) {
	var both []*bench.Row
	for i := range m.report.Rows {
		row := &m.report.Rows[i]
		if row.Case == w.name+": "+secondChance+" / floor" || row.Case == w.name+": "+katranFlows+" / "+secondChance {
			both = append(both, row)
		}
	}
	if len(both) == 2 && (*both[0].Met || *both[1].Met) {
		met := true
		both[0].Met, both[1].Met = &met, &met
		m.report.Note("%s: %s meets one of two goals, which is enough", w.name, secondChance)
	}
}

// events adds instructions executed and cache misses per packet, where the machine counts
// them.
func (m *meter) events(w workload, all []*program) error {
	for _, e := range []struct {
		name string
		kind uint64
	}{{"instructions executed", unix.PERF_COUNT_HW_INSTRUCTIONS}, {"cache misses", unix.PERF_COUNT_HW_CACHE_MISSES}} {
		for _, p := range all {
			count, err := p.count(w, e.kind)
			if err != nil {
				m.noteOnce(fmt.Sprintf("%s are not counted: the kernel says: %v", e.name, err))
				break
			}
			m.report.Rows = append(m.report.Rows, bench.Plain(w.name+": "+p.name+": "+e.name, "/packet", count))
		}
	}
	return nil
}

// count counts an event of the CPU, per packet of one turn.
func (p *program) count(w workload, kind uint64) (perPacket float64, err error) {
	err = p.pinned(func() error {
		c, err := measure.OpenCounter(kind)
		if err != nil {
			return err
		}
		const packets = 1 << 18
		_, err = p.rig.Run(packets)
		n, failed := c.Read()
		perPacket = float64(n) / packets
		return errors.Join(err, failed, c.Close())
	})
	return perPacket, err
}

func (m *meter) noteOnce(note string) {
	if !slices.Contains(m.report.Notes, note) {
		m.report.Note("%s", note)
	}
}

// instructions adds the sizes of the programs.
func (m *meter) instructions(all []*program) (err error) {
	empty, err := xdpbench.FloorRig(xdpbench.FloorTX, 1, 1, m.networks[0].NIC)
	if err != nil {
		return err
	}
	harness, err := empty.Instructions()
	if err := errors.Join(err, empty.Close()); err != nil {
		return err
	}
	for _, p := range all {
		n, err := p.rig.Instructions()
		if err != nil {
			return err
		}
		const empty = 2 // of the program in the empty harness
		m.report.Rows = append(m.report.Rows, bench.Plain("instructions in the kernel: "+p.name, "instructions", float64(n-harness+empty)))
	}
	return nil
}

// The goals of second chance with many VIPs.
const (
	tablesMB   = 100
	filledIn   = time.Second
	changeMS   = 0.2
	changeAllS = 1
	changes    = 50
)

// costs adds what the tables of a scenario with many VIPs cost.
func (m *meter) costs(ctx context.Context, s scenario, all []*program) error {
	for _, p := range all {
		if p.cost == nil {
			continue
		}
		m.say("tables of %s", p.name)
		add := func(what string, r bench.Row, goal float64) {
			r.Case = s.name + ": " + p.name + ": " + what
			if p.name == secondChance && s.vips > 1 {
				r = r.AtMost(goal)
			}
			m.report.Rows = append(m.report.Rows, r)
		}
		if err := errors.Join(ctx.Err(), m.cost(s, p, add)); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (m *meter) cost(s scenario, p *program, add func(what string, r bench.Row, goal float64)) error {
	tables, err := p.cost.tables()
	if err != nil {
		return err
	}
	flows, err := p.cost.flows()
	if err != nil {
		return err
	}
	add("table memory", bench.Plain("", "MB", float64(tables)/1e6), tablesMB)
	if p.table {
		m.report.Rows = append(m.report.Rows, bench.Plain(s.name+": "+p.name+": flow table memory", "MB", float64(flows)/1e6))
	}
	if s.vips == 1 {
		return nil
	}
	m.report.Note("%s: %s: tables filled: %s", s.name, p.name, p.cost.note)
	add("tables filled in", bench.Plain("", "s", p.cost.filled.Seconds()), filledIn.Seconds())
	var took []float64
	for i := range changes {
		began := time.Now()
		if err := p.cost.change(i * s.vips / changes); err != nil {
			return err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	add("one backend changes in one VIP", bench.Plain("", "ms", took...), changeMS)
	if s.pool > s.backends {
		return nil
	}
	began := time.Now()
	for i := range s.vips {
		if err := p.cost.change(i); err != nil {
			return err
		}
	}
	add("one backend changes in all VIPs", bench.Plain("", "s", time.Since(began).Seconds()), changeAllS)
	return nil
}
