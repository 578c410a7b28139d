package xdp

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/features"
)

// Degraded lists the optional features that this kernel, or the driver of an interface,
// does not support.
func (d *DataPlane) Degraded() []features.Degraded {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.program.Missing, d.generic)
}

// withoutNative records that an interface has generic XDP although native was wanted.
func (d *DataPlane) withoutNative(name, reason string) {
	one := features.NewDegraded(features.NativeXDP, features.Balancer, fmt.Errorf("%s: %s", name, reason))
	one.Reason = "driver"
	d.generic = append(d.generic, one)
}
