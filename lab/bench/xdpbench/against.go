package xdpbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/netns"
)

// Build contains the compiled programs of another version: the load balancer's, and the
// harness around the DSR agent's. Half may be empty.
type Build struct {
	Name          string
	Balancer, DSR []byte
}

// Paths of the objects, relative to the root of the repository: now, and in revisions
// before they moved.
var (
	balancerObjectPaths = []string{"dataplane/xdp/bpf/balancer_bpfel.o", "dataplane/xdp/balancer_bpfel.o"}
	dsrObjectPaths      = []string{"lab/bench/xdpbench/dsr_bpfel.o", "lab/bench/xdpbench/server_bpfel.o", "dataplane/xdp/xdpbench/server_bpfel.o"}
)

// ReadBuild reads a build from a load balancer object file, from the root of a checkout,
// or from a revision of the repository in the working directory.
func ReadBuild(ctx context.Context, from string) (*Build, error) {
	b := &Build{Name: from}
	read := func(object string) ([]byte, error) { return fromGit(ctx, from, object) }
	info, err := os.Stat(from)
	switch {
	case err == nil && !info.IsDir():
		b.Balancer, err = os.ReadFile(from)
	case err == nil:
		read = func(object string) ([]byte, error) { return os.ReadFile(filepath.Join(from, object)) }
		fallthrough
	default:
		if b.Balancer, err = readAny(read, balancerObjectPaths); err == nil {
			b.DSR, err = readAny(read, dsrObjectPaths)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--against: %q is no object file, no checkout and no revision: %w", from, err)
	}
	return b, nil
}

// readAny reads the first object that exists.
func readAny(read func(string) ([]byte, error), objects []string) (object []byte, err error) {
	for _, path := range objects {
		if object, err = read(path); err == nil {
			break
		}
	}
	return object, err
}

func fromGit(ctx context.Context, revision, path string) ([]byte, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", "show", "--end-of-options", revision+":"+path)
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git show: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return text, nil
}

// slowerAtMost is how much slower a case may be than with the other build. roundsALoad is
// the number of rounds before both programs are loaded again, because the position of
// code in memory is random and affects speed.
const (
	slowerAtMost = 1.03
	roundsALoad  = 3
)

// compareProgram measures a subject under its i-th load with this build's program and the
// other's, alternately, on the same maps.
func (m *meter) compareProgram(ctx context.Context, s subject, i int, name string) (err error) {
	sc := &scene{meter: m, subject: s, load: s.loads[i], name: name}
	defer func() { err = errors.Join(err, CloseAll(sc.open)) }()
	if err := sc.contend(); err != nil {
		return err
	}
	if err := m.Balancer.Do(sc.warm); err != nil {
		return err
	}
	return m.compare(ctx, m.Balancer, name, func() (both [2]contender, close func() error, err error) {
		now, err := BalancerRig(sc.under, m.NIC)
		if err != nil {
			return both, nil, err
		}
		before, err := otherRig(sc, m.o.Against)
		if err != nil {
			return both, nil, errors.Join(err, now.Close())
		}
		close = func() error { return errors.Join(now.Close(), before.Close()) }
		for j, r := range []*Rig{before, now} {
			if both[j], err = sc.contender(r, uint64(j)<<30+sc.turn); err != nil {
				return both, nil, errors.Join(err, close())
			}
		}
		sc.turn += 1 << 22 // beyond all packets of this load, so that new flows are new again
		return both, close, nil
	})
}

func otherRig(s *scene, b *Build) (*Rig, error) {
	spec, pins, err := s.under.ProgramsOf(bytes.NewReader(b.Balancer))
	if err != nil {
		return nil, err
	}
	r, err := rigOf(spec, pins, s.under.Settings(), s.NIC)
	if err != nil {
		return nil, fmt.Errorf("%s: its maps are not this version's: %w", b.Name, err)
	}
	return r, nil
}

// contender sends the subject's packets through a rig, starting at the given turn.
func (s *scene) contender(r *Rig, turn uint64) (c contender, err error) {
	if r.state, err = s.subject.state(s.load); err != nil {
		return c, err
	}
	r.state.Turn = turn
	c.run = func() (float64, error) { return r.Run(s.packets()) }
	switch {
	case s.both:
		c.run, err = s.thereAndBack(r)
	case s.flood:
		c.run, err = s.inFlood(r)
	}
	return c, err
}

// compare alternates between two contenders, the other build and this one, and loads them
// again several times. Each load yields one ratio.
func (m *meter) compare(ctx context.Context, in *netns.NS, name string, load func() ([2]contender, func() error, error)) error {
	var before, now, ratios []float64
	for range max(1, m.o.Rounds/roundsALoad) {
		both, close, err := load()
		if err != nil {
			return err
		}
		few := &meter{m.Network, m.o, nil}
		few.o.Rounds = roundsALoad + 1
		took, err := few.rounds(ctx, in, both[:])
		if err := errors.Join(err, close()); err != nil {
			return err
		}
		old, new := took[0][1:], took[1][1:] // the first round only fills maps and caches
		before, now = append(before, old...), append(now, new...)
		ratios = append(ratios, bench.RatioTo("", new, old).Times.Median)
	}
	m.report.Rows = append(m.report.Rows, bench.Compared(name, "ns/packet", m.o.Against.Name, now, before, ratios).NotAbove(slowerAtMost))
	return nil
}

// compareHalf compares the DSR agent's programs.
func (m *meter) compareDSR(ctx context.Context, h *dsrAgent, c dsrCase) error {
	if m.o.Against.DSR == nil {
		m.report.Note("%s: not compared: %s contains only the balancer's program", c.name, m.o.Against.Name)
		return nil
	}
	return m.compare(ctx, h.node, c.name, func() (both [2]contender, close func() error, err error) {
		all := [2]dsrAgent{*h, *h}
		if err := all[0].load(bytes.NewReader(m.o.Against.DSR)); err != nil {
			return both, nil, fmt.Errorf("%s: %w", m.o.Against.Name, err)
		}
		if err := all[1].load(nil); err != nil {
			return both, nil, errors.Join(err, all[0].dsrObjects.Close())
		}
		close = func() error { return errors.Join(all[0].dsrObjects.Close(), all[1].dsrObjects.Close()) }
		for j := range all {
			if both[j].run, err = all[j].contender(c); err != nil {
				return both, nil, errors.Join(err, close())
			}
		}
		return both, close, nil
	})
}

// contender sends a case's frames, and returns their time less that of the harness
// itself.
func (h *dsrAgent) contender(c dsrCase) (run func() (float64, error), err error) {
	if err := h.node.Do(func() error { return h.warm(c) }); err != nil {
		return nil, err
	}
	var overhead float64
	err = h.node.Do(func() error {
		return cputime.Pinned(func() (err error) {
			overhead, err = h.overhead(c)
			return err
		})
	})
	return func() (float64, error) {
		ns, err := h.send(c)
		return ns - overhead, err
	}, err
}

// overhead returns the time that the harness itself takes per packet of a case: the
// median of some runs.
func (h *dsrAgent) overhead(c dsrCase) (float64, error) {
	var all []float64
	for range 9 {
		var took [4]float64
		for i, prog := range []*ebpf.Program{h.BenchEmpty, h.BenchStore, h.BenchRoom, h.BenchRooms} {
			ns, err := h.run(prog, dsrPackets, actUnspec)
			if err != nil {
				return 0, err
			}
			took[i] = ns
		}
		all = append(all, c.overhead(took))
	}
	return median(all), nil
}
