// Package slices measures whether a guaranteed rate is kept: two networks share one
// uplink, one of them has a guarantee, and the other one sends as much as it can. It
// records the throughput of every second.
package slices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab/domain"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce/kernel"
)

// Options configures what is measured. Zero values mean the case of the VDN paper: 400
// Mbit/s guaranteed of 500.
type Options struct {
	// Uplink is the rate of the node's uplink, Guarantee the part of it that one network
	// is guaranteed.
	Uplink, Guarantee vdn.Rate
	// Connections is the number of TCP connections with the guarantee; 0 means 1.
	Connections int
	// Phase is the duration of each phase; 0 means 10 s.
	Phase time.Duration
	// Progress receives the name of each phase. It may be nil.
	Progress func(string)
}

// Phase is the name of a phase.
type Phase string

// The phases, in order.
const (
	Alone         Phase = "alone"
	Attacked      Phase = "attacked"
	AttackerAlone Phase = "attacker alone"
)

// Second contains the throughput of both networks in one second: TCP and UDP payload, in
// bit/s.
type Second struct {
	// At is the end of the second, in seconds since the first phase began.
	At         float64 `json:"at"`
	Phase      Phase   `json:"phase"`
	Guaranteed float64 `json:"guaranteed"`
	Attacker   float64 `json:"attacker"`
}

// Result is one run.
type Result struct {
	Uplink    vdn.Rate `json:"uplink"`
	Guarantee vdn.Rate `json:"guarantee"`
	Seconds   []Second `json:"seconds"`
}

// Of returns the throughput of both networks in a phase: the medians over its seconds,
// without the first one, in which the phase starts.
func (r Result) Of(p Phase) (guaranteed, attacker float64) {
	var g, a []float64
	for _, s := range r.Seconds {
		if s.Phase == p {
			g, a = append(g, s.Guaranteed), append(a, s.Attacker)
		}
	}
	return median(g), median(a)
}

func median(all []float64) float64 {
	if len(all) < 2 {
		return 0
	}
	all = slices.Sorted(slices.Values(all[1:]))
	return all[len(all)/2]
}

const (
	// port is where every pod receives traffic.
	port = 9
	// attacking is the number of TCP connections of the attack, in addition to the UDP
	// flood.
	attacking = 32
	// pins is a folder on a BPF file system.
	pins = "/sys/fs/bpf/fairlead-bench"
)

// SliceUnderAttack builds a domain, enforces its networks in the kernel, and measures.
// Call it in a sandbox.
func SliceUnderAttack(ctx context.Context, o Options) (res Result, err error) {
	o.Uplink = cmp.Or(o.Uplink, 500_000_000)
	o.Guarantee = cmp.Or(o.Guarantee, 400_000_000)
	o.Phase = cmp.Or(o.Phase, 10*time.Second)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	d, err := domain.Build(ctx, domain.Macvlan)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	remove, err := guard(ctx, d, o)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	m, err := newMeter(d)
	if err != nil {
		return res, err
	}
	defer m.close()
	res = Result{Uplink: o.Uplink, Guarantee: o.Guarantee}
	wanted := func(ctx context.Context) error {
		throughput.TCP(ctx, d.Host("a1"), m.at("a2"), max(1, o.Connections))
		return nil
	}
	for _, phase := range []struct {
		name  Phase
		flows []func(context.Context) error
	}{
		{Alone, []func(context.Context) error{wanted}},
		{Attacked, []func(context.Context) error{wanted, m.attack}},
		{AttackerAlone, []func(context.Context) error{m.attack}},
	} {
		o.Progress(string(phase.name))
		if err := m.run(ctx, &res, phase.name, o.Phase, phase.flows); err != nil {
			return res, fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	return res, nil
}

// guard starts enforcement on both nodes, and returns a function that removes it.
func guard(ctx context.Context, d *domain.Domain, o Options) (remove func() error, err error) {
	var all []*kernel.Kernel
	remove = func() error {
		var errs []error
		for _, k := range all {
			errs = append(errs, k.Remove())
		}
		if err := os.Remove(pins); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	for _, node := range []string{"n1", "n2"} {
		err := d.Host(node).Do(func() error {
			k, err := kernel.Open(kernel.Config{
				PinDir: filepath.Join(pins, node), Uplinks: []vdn.Uplink{{Device: domain.Uplink, Rate: o.Uplink}},
			})
			if err == nil {
				all = append(all, k)
				err = k.Apply(ctx, d.Plan(node, 1, vdn.Slice{GuaranteedRate: o.Guarantee}, vdn.Slice{}))
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("node %s: %w", node, err), remove())
		}
	}
	return remove, nil
}

// meter counts what arrives at the pods on the second node.
type meter struct {
	d                    *domain.Domain
	guaranteed, attacker *throughput.Sink
	begun                time.Time
}

func newMeter(d *domain.Domain) (*meter, error) {
	m := &meter{d: d, begun: time.Now()}
	var err error
	if m.guaranteed, err = throughput.Listen(d.Host("a2"), port); err != nil {
		return nil, err
	}
	if m.attacker, err = throughput.Listen(d.Host("b2"), port); err != nil {
		return nil, errors.Join(err, m.guaranteed.Close())
	}
	return m, nil
}

func (m *meter) close() {
	m.guaranteed.Close()
	m.attacker.Close()
}

func (m *meter) at(pod string) netip.AddrPort {
	return netip.AddrPortFrom(m.d.Pods[pod].Addrs[0], port)
}

// attack sends as much as a pod can: a UDP flood and many TCP connections.
func (m *meter) attack(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { throughput.TCP(ctx, m.d.Host("b1"), m.at("b2"), attacking) })
	err := throughput.UDP(ctx, m.d.Host("b1"), m.at("b2"), 0)
	all.Wait()
	return err
}

// run runs the flows for the given time, and records each second.
func (m *meter) run(ctx context.Context, res *Result, phase Phase, long time.Duration, flows []func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, long)
	defer stop()
	errs := make(chan error, len(flows))
	for _, f := range flows {
		go func() { errs <- f(ctx) }()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, g, a := time.Now(), total(m.guaranteed), total(m.attacker)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			now, g2, a2 := time.Now(), total(m.guaranteed), total(m.attacker)
			per := 8 / now.Sub(last).Seconds()
			res.Seconds = append(res.Seconds, Second{
				At: now.Sub(m.begun).Seconds(), Phase: phase, Guaranteed: float64(g2-g) * per, Attacker: float64(a2-a) * per,
			})
			last, g, a = now, g2, a2
		}
	}
	var failed []error
	for range flows {
		failed = append(failed, <-errs)
	}
	return errors.Join(failed...)
}

func total(s *throughput.Sink) uint64 {
	tcp, udp := s.Received()
	return tcp + udp
}
