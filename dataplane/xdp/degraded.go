package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/features"
)

// Degraded lists the optional features that this kernel, or the driver of an
// interface, refuses.
func (d *DataPlane) Degraded() []features.Degraded {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.missing, d.generic)
}

// probeTestRun finds out at the start whether programs can be run on a frame, not
// when a user asks for a trace.
func (d *DataPlane) probeTestRun() {
	f, _ := features.Lookup(features.TestRun)
	if err := f.Probe(features.Balancer); err != nil && !errors.Is(err, features.ErrCannotTry) {
		d.missing = append(d.missing, features.NewDegraded(f.Name, features.Balancer, err))
	}
}

// withoutNative notes that an interface has generic XDP although that was not
// asked for.
func (d *DataPlane) withoutNative(name, reason string) {
	one := features.NewDegraded(features.NativeXDP, features.Balancer, fmt.Errorf("%s: %s", name, reason))
	one.Reason = "driver"
	d.generic = append(d.generic, one)
}
