package dataplane

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/core/service"
)

// Removable is a data plane that can be taken out of the kernel.
type Removable interface {
	DataPlane
	// Detach takes out all that it holds, and closes.
	Detach() error
}

// Move makes a data plane hold what another one holds, and then takes that one
// out of the kernel: there is no moment at which neither forwards. Where any
// frontend is refused, the other goes on as before, and is closed. Flows that it
// remembers do not move.
func Move(from, to Removable) error {
	held, err := from.List()
	for _, f := range held {
		if f.RingSize == 0 { // one that keeps none
			f.RingSize = service.DefaultRingSize
		}
		err = errors.Join(err, to.Upsert(f))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s cannot take over from %s, which goes on forwarding: %w",
			to.Describe().Kind, from.Describe().Kind, err), from.Close())
	}
	return from.Detach()
}
