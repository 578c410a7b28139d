package xdp

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

func (l *lateProgram) name() string { return stepPrograms[l.step] }

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
func (d *DataPlane) stripLate(spec *ebpf.CollectionSpec) {
	for _, l := range d.late.each() {
		if !l.loaded.Load() {
			delete(spec.Programs, l.name())
		}
	}
}

// loadLate loads a program into the table of steps, unless it is there.
func (d *DataPlane) loadLate(l *lateProgram) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded.Load() {
		return nil
	}
	spec, err := d.spec()
	if err == nil {
		err = d.loadStep(l, spec)
	}
	if err != nil {
		return fmt.Errorf("xdp: load the program %s: %w", l.name(), err)
	}
	l.loaded.Store(true)
	return nil
}

func (d *DataPlane) loadStep(l *lateProgram, spec *ebpf.CollectionSpec) error {
	var handover struct {
		Program *ebpf.Program `ebpf:"handover"`
	}
	var syn struct {
		Program *ebpf.Program `ebpf:"syn"`
	}
	into, program := any(&handover), &handover.Program
	if l.step == bpf.BalancerStepSTEP_SYN {
		into, program = &syn, &syn.Program
	}
	if err := d.loadAgain(into, spec); err != nil {
		return err
	}
	return errors.Join(d.kernel.Steps.Put(uint32(l.step), *program), (*program).Close())
}

// inheritLate loads the late programs that the replaced predecessor has: others may rely
// on them, and flows may need them.
func (d *DataPlane) inheritLate(old *predecessor) error {
	folders := []*bpffs.Dir{d.pins}
	if old != nil {
		folders = append(folders, old.pins)
	}
	for _, folder := range folders {
		tables, err := folder.Names(stepsPrefix)
		if err != nil {
			return fmt.Errorf("xdp: PinDir: %w", err)
		}
		for _, name := range tables {
			for _, l := range d.late.each() {
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

// hasStep looks up a step in a pinned table.
func hasStep(path string, step bpf.BalancerStep) (bool, error) {
	table, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return false, fmt.Errorf("xdp: PinDir: %s: %w", path, err)
	}
	defer table.Close()
	if uint32(step) >= table.MaxEntries() {
		return false, nil // from a version without it
	}
	var id uint32
	switch err := table.Lookup(uint32(step), &id); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("xdp: PinDir: %s: %w", path, err)
	}
	return true, nil
}

// Prepare makes the data plane accept packets that others hand to it. Until then they go
// to the kernel.
func (d *DataPlane) Prepare() error { return d.loadLate(&d.late.handover) }
