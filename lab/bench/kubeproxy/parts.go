package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/lab/bench/proxybench"
)

// figures contains measured values by key. The keys are those of report.go.
type figures map[string][]float64

func (f figures) add(what string, values ...float64) { f[what] = append(f[what], values...) }

// meter measures one proxy in one cluster.
type meter struct {
	*experiment
	cluster *cluster
	subject subject
	into    figures
	// floor enables measuring the floor in alternation with the starts.
	floor bool
}

// startLimit is the time limit for the start of a proxy, changeLimit for one change.
const (
	startLimit  = 30 * time.Minute
	changeLimit = 2 * time.Minute
)

func (m *meter) logf(format string, args ...any) {
	m.experiment.logf("  %s among %d: "+format, append([]any{m.subject.name(), m.cluster.services}, args...)...)
}

// measure measures the requested parts, and then ends the proxy.
func (m *meter) measure(ctx context.Context, parts ...string) error {
	for _, part := range parts {
		if !m.wants(part) {
			continue
		}
		if err := m.part(ctx, part); err != nil {
			return errors.Join(fmt.Errorf("%s: %s: %w", m.subject.name(), part, err), m.end())
		}
	}
	return m.end()
}

// part measures one part, on a running proxy except for Start.
func (m *meter) part(ctx context.Context, part string) error {
	if part == Start {
		return m.starts(ctx)
	}
	if _, err := m.subject.program().PID(); err != nil {
		if _, err := m.start(ctx); err != nil {
			return err
		}
	}
	switch part {
	case Add:
		return m.changes(ctx, "add", func(int) (pair, error) { return m.cluster.addService(ctx) })
	case Change:
		return m.changes(ctx, "change", func(i int) (pair, error) { return m.cluster.changeEndpoint(ctx, m.cluster.scattered(i)) })
	case Churn:
		return m.churn(ctx)
	case Memory:
		return m.memory()
	case Packet:
		return m.firstPackets(ctx)
	case Restart:
		return m.restart(ctx)
	}
	return m.rolling(ctx)
}

// end kills the proxy and removes what it left in the kernel.
func (m *meter) end() error {
	return errors.Join(m.subject.program().Stop(), m.subject.clear())
}

// start starts the proxy and returns how long it took until the kernel had everything.
func (m *meter) start(ctx context.Context) (took float64, err error) {
	began := time.Now()
	if err := startUnready(ctx, m.subject.program()); err != nil {
		return 0, err
	}
	if err := await(ctx, m.subject.program(), "everything in the kernel", startLimit, 5*time.Millisecond, m.subject.complete); err != nil {
		return 0, err
	}
	took = time.Since(began).Seconds()
	return took, m.subject.verify()
}

// starts measures starts from scratch, in alternation with the floor.
func (m *meter) starts(ctx context.Context) error {
	n := 1
	if m.floor {
		n = m.Starts
		if _, _, err := m.floorTime(ctx, m.cluster); err != nil { // warms up the server
			return err
		}
	}
	for range n {
		if err := m.end(); err != nil {
			return err
		}
		if m.floor {
			took, b, err := m.floorTime(ctx, m.cluster)
			if err != nil {
				return err
			}
			m.into.add("floor", took)
			m.logf("floor %.2f s (listed and decoded %.2f s, written %.3f s)", took, b.List, b.Write)
		}
		took, err := m.start(ctx)
		if err != nil {
			return err
		}
		m.into.add("start", took)
		m.logf("all in the kernel after %.2f s", took)
	}
	return nil
}

// scattered returns the i-th of a sequence of Services that are far apart. It visits each
// Service once before it repeats any.
func (c *cluster) scattered(i int) int {
	const step = 7919 // a prime
	if c.services%step == 0 {
		return i % c.services
	}
	return i * step % c.services
}

// changes makes changes one by one. It measures from the server's answer until the kernel
// has the change.
func (m *meter) changes(ctx context.Context, what string, change func(i int) (pair, error)) error {
	for i := range m.Changes {
		time.Sleep(150 * time.Millisecond) // so that it is not batched with the previous one
		made, err := change(i)
		if err != nil {
			return err
		}
		answered := time.Now()
		err = await(ctx, m.subject.program(), what, changeLimit, m.subject.pause(), func() (bool, error) {
			held, err := m.subject.held([]pair{made})
			return err == nil && held[0], err
		})
		if err != nil {
			return err
		}
		m.into.add(what, milliseconds(time.Since(answered)))
	}
	m.logf("%s: p50 %.1f ms, p99 %.1f ms", what, percentile(m.into[what], 50), percentile(m.into[what], 99))
	return m.recordAgent(ctx, what)
}

// recordAgent records the agent's own part of the delay, as it reports it: from receiving a
// change until it is written.
func (m *meter) recordAgent(ctx context.Context, what string) error {
	f, ours := m.subject.(*fairlead)
	if !ours {
		return nil
	}
	s, err := f.state(ctx)
	if err != nil {
		return err
	}
	m.into.add("agent p50 "+what, milliseconds(s.DelayP50))
	m.into.add("agent p99 "+what, milliseconds(s.DelayP99))
	m.logf("of that the agent: p50 %.2f ms, p99 %.2f ms", milliseconds(s.DelayP50), milliseconds(s.DelayP99))
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// memory measures the peak and the current memory of the process, and the memory of its
// maps in the kernel.
func (m *meter) memory() error {
	most, now, err := residentOf(m.subject.program())
	if err != nil {
		return err
	}
	m.into.add("rss most", most)
	m.into.add("rss now", now)
	m.logf("%.0f MB of memory at most, %.0f MB now", most, now)
	if _, ours := m.subject.(*fairlead); !ours {
		return nil
	}
	maps, err := proxybench.Memory(pins)
	m.into.add("maps", float64(maps)/1e6)
	m.logf("%.0f MB of maps", float64(maps)/1e6)
	return err
}
