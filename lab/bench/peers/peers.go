// Package peers measures the load balancer's programs next to those of other load
// balancers: all of them in one harness, in alternation, in one run. The sources of the
// peers are the user's; they are compiled into a temporary folder.
package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/xdpbench"
)

// Options configures what is measured.
type Options struct {
	// Katran is a folder with Katran's sources. Without it, only the load balancer and the
	// floors are measured.
	Katran string
	// Rounds is the number of rounds per workload. In each round, all programs are measured
	// one after the other.
	Rounds int
	// Only selects the workloads whose names contain it.
	Only string
	// Growth measures growth curves, over flows, VIPs and backends, instead.
	Growth bool
	// Progress receives progress messages.
	Progress io.Writer
}

// Validate reports which options are invalid.
func (o Options) Validate() error {
	var errs []error
	if o.Rounds < 3 || o.Rounds > 1000 {
		errs = append(errs, fmt.Errorf("--rounds: %d is not between 3 and 1000", o.Rounds))
	}
	if o.Katran != "" {
		if _, err := os.Stat(katranSource(o.Katran)); err != nil {
			errs = append(errs, fmt.Errorf("--katran: %w: is it a checkout of facebookincubator/katran?", err))
		}
	}
	return errors.Join(errs...)
}

// size is the size of everything. Tests use a small one.
type size struct {
	flowTable int    // entries of each flow table
	flows     uint64 // of the largest load
	vips      int    // in the scenarios with many VIPs, each with so many ...
	backends  int
}

var full = size{flowTable: xdpbench.TableSize, flows: 1 << 20, vips: xdpbench.ManyVIPs, backends: 100}

// builder loads a peer's programs for a scenario.
type builder func(ctx context.Context, s scenario, n *xdpbench.Network) ([]*program, error)

// meter measures the scenarios one after the other.
type meter struct {
	o      Options
	size   size
	peers  []builder
	report *bench.Report
	// Two data planes need two networks: one with second chance, one with a flow table.
	networks [2]*xdpbench.Network
}

// Measure measures all workloads. It must run in a sandbox. If it returns an error, the
// report contains what was measured before.
func Measure(ctx context.Context, o Options) (r *bench.Report, err error) {
	m := &meter{o: o, size: full}
	if o.Katran != "" {
		folder, err := os.MkdirTemp("", "peers")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
		k := katran{from: o.Katran, folder: folder}
		m.peers = append(m.peers, k.programs)
	}
	return m.measure(ctx)
}

func (m *meter) measure(ctx context.Context) (r *bench.Report, err error) {
	m.report = bench.New("peers")
	all := scenarios(m.size)
	if m.o.Growth {
		m.report, all = bench.New("peers-growth"), growth(m.size)
	}
	defer func() {
		for _, n := range m.networks {
			if n != nil {
				err = errors.Join(err, n.Close())
			}
		}
	}()
	for i, name := range []string{"chance", "table"} {
		if m.networks[i], err = xdpbench.NewNetwork(name); err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
	}
	m.explain()
	for _, s := range all {
		if err := m.scenario(ctx, s); err != nil {
			return m.report, fmt.Errorf("peers: %w", err)
		}
	}
	if len(m.report.Rows) == 0 {
		return nil, fmt.Errorf("peers: no workload has %q in its name", m.o.Only)
	}
	return m.report, nil
}

func (m *meter) explain() {
	m.report.Note("ns/packet: CPU time of one pinned thread, the median of %d rounds, including the harness; within: half of the rounds; "+
		"every packet is rewritten before, and each program passes all its flows once before it is timed", m.o.Rounds)
	m.report.Note("peer / program: the median of the rounds' ratios, larger is better; within: the 95 %% interval of that median (order statistics)")
	m.report.Note("%d backends per VIP; flow tables of %d entries; IPIP; the output of each program is checked before it is timed: length, checksum, inner packet, and that the backend is one of the VIP", m.size.backends, m.size.flowTable)
	if len(m.peers) == 0 {
		m.report.Note("no peer: name a folder with its sources (PEER_KATRAN=DIR) to compare with it")
	}
}

// wanted returns the selected workloads of a scenario.
func (m *meter) wanted(s scenario) (all []workload) {
	for _, w := range s.workloads {
		if strings.Contains(w.name, m.o.Only) {
			all = append(all, w)
		}
	}
	return all
}

func (m *meter) say(format string, args ...any) {
	fmt.Fprintf(m.o.Progress, "peers: "+format+"\n", args...)
}

// scenario loads all programs, and measures each workload with them.
func (m *meter) scenario(ctx context.Context, s scenario) (err error) {
	wanted := m.wanted(s)
	if len(wanted) == 0 {
		return nil
	}
	var all []*program
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
	}()
	load := append([]builder{m.floors, m.ours}, m.peers...)
	for _, build := range load {
		some, err := build(ctx, s, m.networks[0])
		all = append(all, some...)
		if err != nil {
			return err
		}
	}
	if s.vips == 1 && !m.o.Growth {
		if err := m.instructions(all); err != nil {
			return err
		}
	}
	for _, w := range wanted {
		m.say("%s", w.name)
		if err := m.workload(ctx, s, w, all); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if m.o.Growth {
		return nil
	}
	return m.costs(ctx, s, all)
}
