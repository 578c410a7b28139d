package xdp

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpfload"
)

// variant is the program loaded again, with other constants, on the attached one's maps:
// it makes the same decisions, and reports more.
type variant struct{ kernel bpf.BalancerObjects }

// newVariant loads one. set changes the constants. private are the maps that it does not
// share, in addition to the table of steps, which refers to programs with the same
// constants.
func (d *DataPlane) newVariant(set func(*ebpf.CollectionSpec) error, private ...string) (*variant, error) {
	v := &variant{}
	spec, err := d.spec()
	if err != nil {
		return nil, err
	}
	fillSteps(spec)
	if err := set(spec); err != nil {
		return nil, err
	}
	if err := d.loadAgain(&v.kernel, spec, append(private, bpf.BalancerMapSteps)...); err != nil {
		return nil, fmt.Errorf("load the program once more: %w", err)
	}
	return v, nil
}

// loadAgain loads a struct's objects with the attached program's constants and maps,
// except private maps.
func (d *DataPlane) loadAgain(into any, spec *ebpf.CollectionSpec, private ...string) error {
	if err := d.setConstants(spec); err != nil {
		return err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	shared := mapsByName(d.kernel.BalancerMaps)
	shared[settingsSection], shared[auth.Section] = d.kernel.Settings, d.kernel.AuthData
	for _, name := range private {
		delete(shared, name)
	}
	return spec.LoadAndAssign(into, &ebpf.CollectionOptions{MapReplacements: shared})
}

// Close closes it. Nothing remains unless it is attached.
func (v *variant) Close() error { return v.kernel.Close() }

// Programs returns the programs, with the constants of this data plane, for embedding in
// others such as benchmarks, and the directory of the maps' pins. They return XDP_TX on a
// veth too, as on hardware.
func (d *DataPlane) Programs() (spec *ebpf.CollectionSpec, pins string, err error) {
	return d.programs(bpf.LoadBalancer)
}

// Chained is Programs with the other programs in the table of steps, so that a packet
// continues there as in the attached load balancer.
func (d *DataPlane) Chained() (spec *ebpf.CollectionSpec, pins string, err error) {
	if spec, pins, err = d.Programs(); err == nil {
		fillSteps(spec)
	}
	return spec, pins, err
}

// ProgramsOf does so with another build of the object, to compare the two on the same
// maps.
func (d *DataPlane) ProgramsOf(object io.ReaderAt) (spec *ebpf.CollectionSpec, pins string, err error) {
	return d.programs(func() (*ebpf.CollectionSpec, error) { return bpfload.Other(object, bpf.LoadBalancer) })
}

func (d *DataPlane) programs(load func() (*ebpf.CollectionSpec, error)) (spec *ebpf.CollectionSpec, pins string, err error) {
	if spec, err = d.specOf(load); err != nil {
		return nil, "", err
	}
	err = errors.Join(d.setConstants(spec), spec.Variables[bpf.BalancerVarBackByRedirect].Set(false))
	return spec, d.pins.Path(""), err
}

// mapsByName returns the maps of a generated object, by their names in C.
func mapsByName(maps any) map[string]*ebpf.Map {
	byName := map[string]*ebpf.Map{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(maps)) {
		if name := f.Tag.Get("ebpf"); name != "" {
			byName[name] = reflect.ValueOf(maps).FieldByIndex(f.Index).Interface().(*ebpf.Map)
		}
	}
	return byName
}
