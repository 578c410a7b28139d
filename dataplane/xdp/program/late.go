package program

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpffs"
)

// lateProgram is a step that no packet needs at first: it is loaded on demand, so that
// startup does not wait for the verifier.
type lateProgram struct {
	step   bpf.BalancerStep
	mu     sync.Mutex // held while loading
	loaded atomic.Bool
}

func (l *lateProgram) name() string { return Steps[l.step] }

// lateSteps are the programs of that kind.
type lateSteps struct{ handover, syn lateProgram }

func newLateSteps() lateSteps {
	return lateSteps{
		handover: lateProgram{step: bpf.BalancerStepSTEP_HANDOVER},
		syn:      lateProgram{step: bpf.BalancerStepSTEP_SYN},
	}
}

func (l *lateSteps) each() []*lateProgram { return []*lateProgram{&l.handover, &l.syn} }

// stripLate removes programs from an object that are not loaded.
func (p *Program) stripLate(spec *ebpf.CollectionSpec) {
	for _, l := range p.late.each() {
		if !l.loaded.Load() {
			delete(spec.Programs, l.name())
		}
	}
}

// LoadHandover loads the program for packets that others hand over, unless it is loaded.
func (p *Program) LoadHandover() error { return p.loadLate(&p.late.handover) }

// LoadSYN loads the program for frontends under pressure, unless it is loaded.
func (p *Program) LoadSYN() error { return p.loadLate(&p.late.syn) }

// HasSYN reports whether that is loaded, or will be with the others.
func (p *Program) HasSYN() bool { return p.late.syn.loaded.Load() }

// loadLate loads a program into the table of steps, unless it is there.
func (p *Program) loadLate(l *lateProgram) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded.Load() {
		return nil
	}
	spec, err := p.specOf(bpf.LoadBalancer)
	if err == nil {
		err = p.loadStep(l, spec)
	}
	if err != nil {
		return fmt.Errorf("xdp: load the program %s: %w", l.name(), err)
	}
	l.loaded.Store(true)
	return nil
}

func (p *Program) loadStep(l *lateProgram, spec *ebpf.CollectionSpec) error {
	var handover struct {
		Program *ebpf.Program `ebpf:"handover"`
	}
	var syn struct {
		Program *ebpf.Program `ebpf:"syn"`
	}
	into, loaded := any(&handover), &handover.Program
	if l.step == bpf.BalancerStepSTEP_SYN {
		into, loaded = &syn, &syn.Program
	}
	if err := p.Again(into, spec); err != nil {
		return err
	}
	return errors.Join(p.Steps.Put(uint32(l.step), *loaded), (*loaded).Close())
}

// Inherit marks the late programs for loading that a replaced predecessor has, in one of these
// folders: others may rely on them, and flows may need them.
func (p *Program) Inherit(folders ...*bpffs.Dir) error {
	for _, folder := range folders {
		tables, err := folder.Names(StepsPrefix)
		if err != nil {
			return fmt.Errorf("xdp: PinDir: %w", err)
		}
		for _, name := range tables {
			for _, l := range p.late.each() {
				has, err := hasStep(folder.Path(name), l.step)
				if err != nil {
					return err
				}
				if has {
					l.loaded.Store(true)
				}
			}
		}
	}
	return nil
}
