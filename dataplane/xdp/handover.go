package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpffs"
)

// handoverProgram is what no packet needs before a balancer drains: it is loaded
// when one may, so that a start need not wait for the verifier to look at it.
const handoverProgram = "handover"

// Prepare makes the data plane take packets that others hand to it. Until then
// they are the kernel's.
func (d *DataPlane) Prepare() error {
	if d.handsOver.Load() {
		return nil
	}
	var loaded struct {
		Program *ebpf.Program `ebpf:"handover"`
	}
	spec, err := d.spec()
	if err == nil {
		err = d.loadAgain(&loaded, spec)
	}
	if err != nil {
		return fmt.Errorf("xdp: load the program %s: %w", handoverProgram, err)
	}
	err = d.kernel.Steps.Put(uint32(balancerStepSTEP_HANDOVER), loaded.Program)
	if err = errors.Join(err, loaded.Program.Close()); err != nil {
		return fmt.Errorf("xdp: program %s: %w", handoverProgram, err)
	}
	d.handsOver.Store(true)
	return nil
}

// predecessorHandsOver says whether the program is in the place of a
// predecessor that has it: other balancers may count on it.
func (d *DataPlane) predecessorHandsOver(old *predecessor) (bool, error) {
	folders := []*bpffs.Dir{d.pins}
	if old != nil {
		folders = append(folders, old.pins)
	}
	for _, folder := range folders {
		tables, err := folder.Names(stepsPrefix)
		if err != nil {
			return false, fmt.Errorf("xdp: PinDir: %w", err)
		}
		for _, name := range tables {
			has, err := hasHandover(folder.Path(name))
			if has || err != nil {
				return has, err
			}
		}
	}
	return false, nil
}

// hasHandover looks into a pinned table of steps.
func hasHandover(path string) (bool, error) {
	table, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return false, fmt.Errorf("xdp: PinDir: %s: %w", path, err)
	}
	defer table.Close()
	var id uint32
	switch err := table.Lookup(uint32(balancerStepSTEP_HANDOVER), &id); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("xdp: PinDir: %s: %w", path, err)
	}
	return true, nil
}
