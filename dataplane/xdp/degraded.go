package xdp

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/features"
)

// Degraded lists the optional features that this kernel, or the driver of an interface,
// does not support.
func (d *DataPlane) Degraded() []features.Degraded {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.program.Missing, d.links.Degraded())
}

// Impossible reports whether an error of Open means that this kernel, or the process's
// permissions, do not allow the program to run. All other errors can be fixed.
func Impossible(err error) bool {
	var verifier *ebpf.VerifierError
	for _, cannot := range []error{ebpf.ErrNotSupported, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM} {
		if errors.Is(err, cannot) {
			return true
		}
	}
	return errors.As(err, &verifier)
}
