package peers

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/lab/bench/xdpbench"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/netns"
)

// program is one of the programs that alternate.
type program struct {
	name  string
	rig   *xdpbench.Rig
	in    *netns.NS // where its packets arrive
	table bool      // it has a flow table
	floor bool
	ours  bool
	aged  bool // its flow table has been filled several times over
	// begun returns the number of flows that began so far. It may be nil.
	begun func() (uint64, error)
	cost  *cost
	open  []io.Closer
}

// cost is what a program's tables cost, and how a change is written.
type cost struct {
	filled time.Duration
	note   string // how that was measured
	// tables and flows return the bytes of the tables of VIPs and backends, and of the
	// flow table.
	tables, flows func() (uint64, error)
	// change changes a backend of the i-th VIP.
	change func(i int) error
}

// Close closes the program and what it needs.
func (p *program) Close() error { return xdpbench.CloseAll(p.open) }

// pinned runs f on one CPU in the program's namespace.
func (p *program) pinned(f func() error) error {
	return p.in.Do(func() error { return cputime.Pinned(f) })
}

// floors loads the bare load balancers.
func (m *meter) floors(_ context.Context, s scenario, n *xdpbench.Network) (all []*program, err error) {
	names := []string{xdpbench.FloorBare, xdpbench.FloorParse, xdpbench.FloorFlows}
	if s.vips > 1 {
		names = []string{xdpbench.FloorRings, xdpbench.FloorFlows}
	}
	for _, name := range names {
		rig, err := xdpbench.FloorRig(name, s.vips, xdpbench.WideRing, n.NIC)
		if err != nil {
			return all, err
		}
		all = append(all, &program{
			name: name, rig: rig, in: n.Balancer, table: name == xdpbench.FloorFlows, floor: true, open: []io.Closer{rig},
		})
	}
	return all, nil
}

// takesPart reports whether a program is measured under a workload.
func (p *program) takesPart(w workload) bool {
	switch {
	case w.want == pass:
		return !p.table && !p.floor || p.name == w.floor || p.name == katranFlows
	case w.aged && w.traffic.Flows > 0:
		return p.table
	}
	return !p.floor || p.name == w.floor || p.table
}

// warm sends what fills tables and caches, and checks what comes out.
func (p *program) warm(s scenario, w workload) error {
	if w.aged && p.table && !p.aged {
		if err := p.rig.Send(xdpbench.Traffic{VIPs: w.traffic.VIPs}); err != nil {
			return err
		}
		if err := p.pass(4 * s.size.flowTable); err != nil {
			return err
		}
		p.aged = true
	}
	if err := p.rig.Send(w.traffic); err != nil {
		return err
	}
	if err := p.pass(int(max(1<<14, w.traffic.Flows))); err != nil {
		return err
	}
	if err := p.in.Do(func() error { return p.check(s, w) }); err != nil {
		return err
	}
	return p.rig.Send(w.traffic) // counts verdicts from now on
}

// pass sends packets in short runs.
func (p *program) pass(packets int) error {
	return p.pinned(func() error {
		for ; packets > 0; packets -= 1 << 18 {
			if _, err := p.rig.Run(min(packets, 1<<18)); err != nil {
				return err
			}
		}
		return nil
	})
}

// turn is a program's turn in a round. First it passes all flows, so that caches contain
// what this program leaves in them, and not the others.
func (p *program) turn(w workload) (ns float64, err error) {
	before, timed := max(w.traffic.Flows, 1<<12), 1<<16
	switch {
	case w.traffic.Flows == 0:
		before, timed = 1<<15, 1<<18
	case w.traffic.Flows > 1<<12:
		timed = 1 << 18
	}
	err = p.pinned(func() error {
		if _, err := p.rig.Run(int(before)); err != nil {
			return err
		}
		ns, err = p.rig.Run(timed)
		return err
	})
	return ns, err
}

// judge returns an error if packets had another verdict than expected.
func (p *program) judge(w workload) error {
	total, v, want := uint64(0), p.rig.Verdicts(), w.want
	if p.floor {
		want = tx // without looking at the destination
	}
	for _, n := range v {
		total += n
	}
	if wrong := total - v[want]; wrong > total/1000 {
		return fmt.Errorf("%s: %d of %d packets were not judged %d: %v", p.name, wrong, total, want, v)
	}
	return nil
}
