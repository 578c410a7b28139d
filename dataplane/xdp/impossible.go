package xdp

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Impossible says of an error of Open that this kernel, or who may do what in
// it, does not let the program run; every other one has a mend.
func Impossible(err error) bool {
	var verifier *ebpf.VerifierError
	for _, cannot := range []error{ebpf.ErrNotSupported, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM} {
		if errors.Is(err, cannot) {
			return true
		}
	}
	return errors.As(err, &verifier)
}
