package program

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/dataplane/auth"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpfload"
)

// Variant loads the program again with other constants, on the same maps: it makes the same
// decisions, and reports more. set changes the constants. private are the maps that it does
// not share, in addition to the table of steps, which refers to programs with the same
// constants. Nothing remains after Close unless it is attached.
func (p *Program) Variant(set func(*ebpf.CollectionSpec) error, private ...string) (*bpf.BalancerObjects, error) {
	spec, err := p.specOf(bpf.LoadBalancer)
	if err != nil {
		return nil, err
	}
	FillSteps(spec)
	if err := set(spec); err != nil {
		return nil, err
	}
	var v bpf.BalancerObjects
	if err := p.Again(&v, spec, append(private, bpf.BalancerMapSteps)...); err != nil {
		return nil, fmt.Errorf("load the program once more: %w", err)
	}
	return &v, nil
}

// Tracer returns the object that reports its decisions, with the programs that are loaded.
func (p *Program) Tracer() (*ebpf.CollectionSpec, error) {
	spec, err := p.specOf(bpf.LoadTracer)
	if err != nil {
		return nil, err
	}
	p.stripLate(spec)
	FillSteps(spec)
	return spec, p.SetConstants(spec)
}

// Again loads a struct's objects with the attached program's constants and maps,
// except private maps.
func (p *Program) Again(into any, spec *ebpf.CollectionSpec, private ...string) error {
	if err := p.SetConstants(spec); err != nil {
		return err
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	shared := ByName(p.BalancerMaps)
	shared[SettingsSection], shared[RoutesSection], shared[auth.Section] = p.Settings, p.Routes, p.AuthData
	for _, name := range private {
		delete(shared, name)
	}
	return spec.LoadAndAssign(into, &ebpf.CollectionOptions{MapReplacements: shared})
}

// Programs returns the programs, with the constants of this one, for embedding in others such
// as benchmarks, and the directory of the maps' pins. Settings are those of now: to follow
// changes, share the map of the settings. They return XDP_TX on a veth too, as on hardware.
func (p *Program) Programs() (spec *ebpf.CollectionSpec, pins string, err error) {
	return p.programs(bpf.LoadBalancer)
}

// Chained is Programs with the other programs in the table of steps, so that a packet
// continues there as in the attached load balancer.
func (p *Program) Chained() (spec *ebpf.CollectionSpec, pins string, err error) {
	if spec, pins, err = p.Programs(); err == nil {
		FillSteps(spec)
	}
	return spec, pins, err
}

// ProgramsOf does so with another build of the object, to compare the two on the same
// maps.
func (p *Program) ProgramsOf(object io.ReaderAt) (spec *ebpf.CollectionSpec, pins string, err error) {
	return p.programs(func() (*ebpf.CollectionSpec, error) { return bpfload.Other(object, bpf.LoadBalancer) })
}

func (p *Program) programs(load func() (*ebpf.CollectionSpec, error)) (spec *ebpf.CollectionSpec, pins string, err error) {
	if spec, err = p.specOf(load); err != nil {
		return nil, "", err
	}
	var set bpf.BalancerSettings
	err = errors.Join(p.SetConstants(spec), spec.Variables[bpf.BalancerVarBackByRedirect].Set(false),
		p.Set.Get(&set), spec.Variables[bpf.BalancerVarSet].Set(set))
	return spec, p.pins.Path(""), err
}
