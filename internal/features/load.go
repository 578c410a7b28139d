package features

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Missing are the optional features that a component runs without.
type Missing []Degraded

// Has reports whether a feature is missing.
func (m Missing) Has(feature string) bool {
	return slices.ContainsFunc(m, func(d Degraded) bool { return d.Feature == feature })
}

// Check probes an optional feature that loading does not exercise, and adds it if the
// kernel rejects it.
func (m *Missing) Check(c Component, feature string) {
	f, _ := Lookup(feature)
	if err := f.Probe(c); err != nil && !errors.Is(err, ErrCannotTry) {
		*m = append(*m, NewDegraded(feature, c, err))
	}
}

// Err returns nil unless a feature is missing; then the error is for a user who requests
// what it provides.
func (m Missing) Err(feature string) error {
	for _, d := range m {
		if d.Feature == feature {
			return fmt.Errorf("%w: %s: %s", ErrMissing, d.Feature, d.Message)
		}
	}
	return nil
}

// Strip removes the missing features from a collection.
func (m Missing) Strip(spec *ebpf.CollectionSpec) {
	for _, d := range m {
		if f, ok := Lookup(d.Feature); ok {
			f.strip(spec)
		}
	}
}

// constant is the name of the programs' constant that indicates a missing feature; not all
// features have one.
func (f Feature) constant() string { return "without_" + strings.ReplaceAll(f.Name, "-", "_") }

// ErrMissing is wrapped by what requires an optional feature that the kernel rejects.
var ErrMissing = errors.New("this kernel refuses an optional feature")

func (f Feature) strip(spec *ebpf.CollectionSpec) {
	for _, n := range f.Needs {
		if n.strip != nil {
			n.strip(spec)
		}
	}
	if v := spec.Variables[f.constant()]; v != nil {
		_ = v.Set(true) // a bool, as TestLoadWithout checks
	}
}

// Removable reports whether programs can be loaded without the feature. Others are optional
// because there is an alternative.
func (f Feature) Removable() bool {
	return slices.ContainsFunc(f.Needs, func(n Need) bool { return n.strip != nil })
}

// Load calls try to load a collection. If the kernel rejects it, Load determines which
// optional features of the component are to blame, removes them, and tries again. If an
// essential feature is rejected, the error names it.
func Load(c Component, spec *ebpf.CollectionSpec, try func(*ebpf.CollectionSpec) error) (Missing, error) {
	first := try(spec.Copy())
	if first == nil || errors.Is(first, ebpf.ErrMapIncompatible) {
		return nil, first
	}
	missing, rest := probeOptional(c)
	err := first
	for {
		if len(missing) > 0 {
			adapted := spec.Copy()
			missing.Strip(adapted)
			if err = try(adapted); err == nil {
				return missing, nil
			}
		}
		if len(rest) == 0 {
			return nil, Refused(c, "load the programs of the "+string(c), err)
		}
		// All probes succeed: leave out one more feature, as long as that may help.
		missing = append(missing, NewDegraded(rest[0], c, first))
		rest = rest[1:]
	}
}

// probeOptional probes all features that can be left out of a component's programs. It
// returns the rejected ones, and the names of the others.
func probeOptional(c Component) (missing Missing, rest []string) {
	for _, f := range Table {
		if f.Essential || !f.For(c) || !f.Removable() {
			continue
		}
		if err := f.Probe(c); err != nil {
			missing = append(missing, NewDegraded(f.Name, c, err))
		} else {
			rest = append(rest, f.Name)
		}
	}
	return missing, rest
}

// Require probes an essential feature that loading does not exercise, so that a component
// fails at its start and not when the feature is first used.
func Require(c Component, feature string) error {
	f, _ := Lookup(feature)
	err := f.Probe(c)
	if errors.Is(err, ErrCannotTry) {
		return nil
	}
	return Refused(c, "open the "+string(c), err)
}

// Refused explains an error of something essential. If the kernel rejects essential
// features it names them, with the kernel's error for the first: the original error may be
// the library's interpretation.
func Refused(c Component, what string, err error) error {
	if err == nil {
		return nil
	}
	names, refusal := essentialRefusals(c)
	if refusal == nil {
		return Explain(what, err)
	}
	return &explained{
		text: fmt.Sprintf("%s: the kernel refuses the essential feature %s: %s; %s", what, shorten(names), refusal, advice(refusal)),
		err:  errors.Join(refusal, err),
	}
}

// essentialRefusals names the essential features that the kernel rejects, of the first kind
// with a rejection: others may be rejected only because of it.
func essentialRefusals(c Component) (names []string, first error) {
	kind := ""
	for _, f := range Table {
		if !f.Essential || !f.For(c) || kind != "" && f.Needs[0].Kind != kind {
			continue
		}
		if err := f.Probe(c); err != nil && !errors.Is(err, ErrCannotTry) {
			if first == nil {
				kind, first = f.Needs[0].Kind, err
			}
			names = append(names, f.Name)
		}
	}
	return names, first
}

func shorten(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Assign sets a struct's fields from a collection by their "ebpf" tags, like
// ebpf.Collection.Assign, but leaves stripped ones nil. The collection still owns what is
// not assigned.
func Assign(c *ebpf.Collection, into any) error {
	return assign(c, reflect.ValueOf(into).Elem())
}

func assign(c *ebpf.Collection, v reflect.Value) error {
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Tag.Get("ebpf")
		if name == "" {
			if field.Kind() == reflect.Struct {
				if err := assign(c, field); err != nil {
					return err
				}
			}
			continue
		}
		switch at := field.Addr().Interface().(type) {
		case **ebpf.Program:
			*at = c.DetachProgram(name)
		case **ebpf.Map:
			*at = c.DetachMap(name)
		case **ebpf.Variable:
			*at = c.Variables[name]
		default:
			return fmt.Errorf("field %s: cannot hold a part of a collection", v.Type().Field(i).Name)
		}
	}
	return nil
}
