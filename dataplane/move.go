package dataplane

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/core/service"
)

// Removable is a data plane that can be removed from the kernel.
type Removable interface {
	DataPlane
	// Detach removes everything programmed, and closes.
	Detach() error
}

// Move programs a data plane with the frontends of another one, and then removes that one
// from the kernel. At least one of them forwards at any time. If any frontend is
// rejected, the other one keeps forwarding and is closed. Its tracked flows do not move.
func Move(from, to Removable) error {
	programmed, err := from.List()
	for _, f := range programmed {
		if f.RingSize == 0 { // a data plane without rings
			f.RingSize = service.DefaultRingSize
		}
		err = errors.Join(err, to.Upsert(f))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s cannot take over from %s, which continues to forward: %w",
			to.Describe().Kind, from.Describe().Kind, err), from.Close())
	}
	return from.Detach()
}
