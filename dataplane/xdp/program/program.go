// Package program loads the balancer's programs: sizes and settings in the object, all
// programs at once onto pinned maps, late ones on demand, and again with other constants or
// private maps for tracing and capturing. It attaches nothing and writes no frontends. Its
// tests, which need maps with contents, are in dataplane/xdp.
package program

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/internal/bpffs"
	"github.com/fairlead/fairlead/internal/features"
)

// Program is the load balancer's program as loaded for one data plane.
type Program struct {
	Objects
	Missing   features.Missing // optional features that the kernel does not support
	Table     string           // the name of the table of steps, among the pins
	options   Options
	pins      *bpffs.Dir
	constants map[string]any
	late      lateSteps
}

// New returns one that is not loaded yet. Its maps are, or will be, pinned in pins.
func New(o Options, pins *bpffs.Dir, constants map[string]any) *Program {
	return &Program{options: o, pins: pins, constants: constants, late: newLateSteps()}
}

// Spec returns what to load the first time: with the programs that a predecessor has (Inherit),
// and the constants.
func (p *Program) Spec() (*ebpf.CollectionSpec, error) {
	spec, err := p.options.Spec()
	if err != nil {
		return nil, err
	}
	return spec, p.SetConstants(spec)
}

// Load loads a spec from Spec with the optional features that the kernel supports. load loads
// the given part of it.
func (p *Program) Load(spec *ebpf.CollectionSpec, load func(*ebpf.CollectionSpec) error) (err error) {
	p.stripLate(spec)
	FillSteps(spec)
	if p.Missing, err = features.Load(features.Balancer, spec, load); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	if err := features.Require(features.Balancer, features.MapBatches); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	p.Missing.Check(features.Balancer, features.TestRun) // now, not when a user starts a trace
	return nil
}

// Together loads the objects of into with all programs in parallel, and pins the maps.
func (p *Program) Together(spec *ebpf.CollectionSpec, into any) error {
	return loadTogether(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: p.pins.Path("")}}, into)
}

// Close closes what is loaded. Pins and links keep it in the kernel.
func (p *Program) Close() error {
	if p == nil {
		return nil
	}
	return p.Objects.Close()
}

// specOf returns programs and maps of an object, without those that the kernel does not
// support.
func (p *Program) specOf(load func() (*ebpf.CollectionSpec, error)) (*ebpf.CollectionSpec, error) {
	spec, err := p.options.specOf(load)
	if err == nil {
		p.Missing.Strip(spec)
	}
	return spec, err
}

// SetConstants sets the constants of a program before loading.
func (p *Program) SetConstants(spec *ebpf.CollectionSpec) error {
	for name, value := range p.constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("xdp: constant %s: %w", name, err)
		}
	}
	return nil
}
