package program

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// Steps are the programs that can continue a packet, by number.
var Steps = map[bpf.BalancerStep]string{
	bpf.BalancerStepSTEP_SLOW_PATH: "slow_path", bpf.BalancerStepSTEP_HANDOVER: "handover", bpf.BalancerStepSTEP_SYN: "syn",
}

// FillSteps lets the loader fill the table of steps.
func FillSteps(spec *ebpf.CollectionSpec) {
	for step, name := range Steps {
		if spec.Programs[name] != nil {
			m := spec.Maps[bpf.BalancerMapSteps]
			m.Contents = append(m.Contents, ebpf.MapKV{Key: uint32(step), Value: name})
		}
	}
}

// StepsPrefix starts the names of the pinned tables of steps, one per attached program:
// the kernel empties a table that only programs reference (kernel/bpf/syscall.c,
// bpf_map_put_uref).
const StepsPrefix = "steps_"

// PinSteps pins the table of steps of the program to attach.
func (p *Program) PinSteps() (err error) {
	p.Table, err = p.PinTable(p.Steps)
	return err
}

// PinTable pins a table of steps and returns the pin's name.
func (p *Program) PinTable(steps *ebpf.Map) (string, error) {
	info, err := steps.Info()
	if err != nil {
		return "", fmt.Errorf("xdp: steps: %w", err)
	}
	id, _ := info.ID()
	name := fmt.Sprint(StepsPrefix, id)
	if err := steps.Pin(p.pins.Path(name)); err != nil {
		return "", fmt.Errorf("xdp: pin steps: %w", err)
	}
	return name, nil
}

// UnpinOldSteps unpins the tables of programs that are no longer attached.
func (p *Program) UnpinOldSteps() error {
	names, err := p.pins.Names(StepsPrefix)
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	for _, name := range names {
		if name == p.Table {
			continue
		}
		if err := p.pins.Remove(name); err != nil {
			return fmt.Errorf("xdp: steps of an earlier program: %w", err)
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
