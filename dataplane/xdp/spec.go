package xdp

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Spec gives the object that d was loaded from, with d's settings, and the
// folder of its pinned maps: for whoever measures a program on them. What goes
// back out of its interface leaves by XDP_TX, as on hardware.
func (d *DataPlane) Spec() (spec *ebpf.CollectionSpec, pins string, err error) {
	if spec, err = d.config.spec(); err != nil {
		return nil, "", err
	}
	if err := spec.Variables[balancerVarSet].Set(d.settings); err != nil {
		return nil, "", fmt.Errorf("xdp: settings: %w", err)
	}
	return spec, d.pins.Path(""), nil
}
