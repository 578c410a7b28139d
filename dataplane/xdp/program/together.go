package program

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/features"
)

// loadTogether loads a collection like spec.LoadAndAssign, but with all programs in
// parallel: the kernel's verifier takes time for each, on one CPU.
func loadTogether(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions, into any) error {
	bare := *spec
	bare.Programs = nil // the library copies them when loading
	base := bare.Copy()
	steps := base.Maps[bpf.BalancerMapSteps]
	if steps != nil {
		steps.Contents = nil // set once the programs are loaded
	}
	whole, err := ebpf.NewCollectionWithOptions(base, o)
	if err != nil {
		return err
	}
	defer whole.Close() // everything not assigned
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
		c.Programs = nil // now owned by whole
		c.Close()
	}
	if err != nil {
		return err
	}
	if steps != nil {
		for _, step := range spec.Maps[bpf.BalancerMapSteps].Contents {
			if err := whole.Maps[bpf.BalancerMapSteps].Put(step.Key, whole.Programs[step.Value.(string)]); err != nil {
				return fmt.Errorf("step %v: %w", step.Key, err)
			}
		}
	}
	return features.Assign(whole, into)
}
