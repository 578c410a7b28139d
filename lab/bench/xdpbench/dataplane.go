package xdpbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/netns"
)

// DataplaneOptions configures what is measured.
type DataplaneOptions struct {
	// Rounds is the number of rounds per case. In each round, the floors and the case are
	// measured one after the other.
	Rounds int
	// Only selects the cases whose names contain it.
	Only string
	// Against is another build to compare the programs with, instead of floors.
	Against *Build
	// Progress receives progress messages.
	Progress io.Writer
}

// Validate reports which option is invalid.
func (o DataplaneOptions) Validate() error {
	if o.Rounds < 3 || o.Rounds > 1000 {
		return fmt.Errorf("--rounds: %d is not between 3 and 1000", o.Rounds)
	}
	return nil
}

// meter measures the cases one after the other.
type meter struct {
	*Network
	o      DataplaneOptions
	report *bench.Report
}

// MeasureDataplane measures the programs packet by packet, and how long a change takes.
// It must run in a sandbox. If it returns an error, the report contains what was measured
// before.
func MeasureDataplane(ctx context.Context, o DataplaneOptions) (*bench.Report, error) {
	n, err := NewNetwork("bench")
	if err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	m := &meter{n, o, bench.New("dataplane")}
	parts := []func(context.Context) error{m.programs, m.dsrAgent, m.attacks, m.changes}
	if o.Against != nil {
		m.explainComparison()
		parts = parts[:2]
	} else {
		m.explain()
	}
	for _, part := range parts {
		if err = part(ctx); err != nil {
			break
		}
	}
	if err := errors.Join(err, n.Close()); err != nil {
		return m.report, fmt.Errorf("dataplane: %w", err)
	}
	if len(m.report.Rows) == 0 {
		return nil, fmt.Errorf("dataplane: no case has %q in its name", o.Only)
	}
	return m.report, nil
}

func (m *meter) explain() {
	m.report.Note("here: CPU time of one pinned thread a packet, in nanoseconds, the median; every packet is complete and of its own flow; the overhead of the harness is included")
	m.report.Note("measured: a case and its floors alternate in every round, and each round gives a ratio to %s at the same load, a bare stateless balancer: "+
		"the median, and what holds the middle half of %d rounds; goals are ratios, too", floorBare, m.o.Rounds)
	m.report.Note("other floors have as much memory: %s has Maglev tables of the same number and size, %s a flow table of %d flows",
		floorRings, floorFlows, tableSize)
	m.report.Note("in a flood: bursts of %d packets, each after as many that open a flow; only the former count, compared with the same measurement without the latter", floodBurst)
	m.report.Note("one VIP with four servers with a Maglev table of %d slots, unless noted otherwise", ringSize)
}

func (m *meter) explainComparison() {
	m.report.Note("ratio: time per packet of this build's program divided by that of %s, on the same maps, alternating round by round; "+
		"both are loaded again every %d rounds, which give a ratio by their median", m.o.Against.Name, roundsALoad)
	m.report.Note("measured is the median of the loads' ratios, min and max are the 95 %% interval of that median (order statistics); " +
		"a goal counts as missed where the whole interval is above it")
}

// wanted reports whether a case is selected, and prints its name if it is.
func (m *meter) wanted(name string) bool {
	if !strings.Contains(name, m.o.Only) {
		return false
	}
	fmt.Fprintln(m.o.Progress, "dataplane:", name)
	return true
}

// contender is one of the programs that are measured in alternation.
type contender struct {
	name string
	run  func() (perPacket float64, err error)
}

// rounds measures contenders in alternation, on one CPU in a namespace, and returns the
// time of each in each round. The order is reversed every other round.
func (m *meter) rounds(ctx context.Context, ns *netns.NS, all []contender) (took [][]float64, err error) {
	took = make([][]float64, len(all))
	err = ns.Do(func() error {
		return cputime.Pinned(func() error { return m.turns(ctx, all, took) })
	})
	return took, err
}

func (m *meter) turns(ctx context.Context, all []contender, took [][]float64) error {
	for round := range m.o.Rounds {
		for i := range all {
			if round%2 == 1 {
				i = len(all) - 1 - i
			}
			ns, err := all[i].run()
			if err := errors.Join(ctx.Err(), err); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			took[i] = append(took[i], ns)
		}
	}
	return nil
}

// row returns the row of the last contender with its ratios to the others. The first
// contender is the floor to which the goal refers.
func (m *meter) row(name string, all []contender, took [][]float64) bench.Row {
	last := len(all) - 1
	var over []bench.Ratio
	for i, c := range all[:last] {
		over = append(over, bench.RatioTo(c.name, took[last], took[i]))
	}
	return bench.OverFloor(name, bench.UnitTimes, took[last], over...)
}

// CloseAll closes all, the last one first.
func CloseAll[T io.Closer](all []T) error {
	var errs []error
	for _, c := range slices.Backward(all) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
