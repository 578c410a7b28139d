package xdp

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/internal/features"
)

// loadTogether loads a collection as spec.LoadAndAssign does, but all programs at
// the same time: the kernel's verifier takes its time for each, on one processor.
func loadTogether(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions, into any) error {
	bare := *spec
	bare.Programs = nil // of which the library makes copies as it loads
	base := bare.Copy()
	steps := base.Maps[balancerMapSteps]
	if steps != nil {
		steps.Contents = nil // programs, once there are some
	}
	whole, err := ebpf.NewCollectionWithOptions(base, o)
	if err != nil {
		return err
	}
	defer whole.Close() // what is not assigned
	loaded := make(chan *ebpf.Collection, len(spec.Programs))
	var group errgroup.Group
	for name, program := range spec.Programs {
		one := base.Copy()
		one.Programs = map[string]*ebpf.ProgramSpec{name: program}
		group.Go(func() error {
			c, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{Programs: o.Programs, MapReplacements: whole.Maps})
			if err == nil {
				loaded <- c
			}
			return err
		})
	}
	err = group.Wait()
	close(loaded)
	for c := range loaded {
		maps.Copy(whole.Programs, c.Programs)
		c.Programs = nil // whole's from now on
		c.Close()
	}
	if err != nil {
		return err
	}
	if steps != nil {
		for _, step := range spec.Maps[balancerMapSteps].Contents {
			if err := whole.Maps[balancerMapSteps].Put(step.Key, whole.Programs[step.Value.(string)]); err != nil {
				return fmt.Errorf("step %v: %w", step.Key, err)
			}
		}
	}
	return features.Assign(whole, into)
}
