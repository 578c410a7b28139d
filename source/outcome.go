package source

import (
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// Outcome is what this load balancer has done with a Service that it serves.
type Outcome struct {
	ID service.ID
	// Created distinguishes the Service from a former one with the same name.
	Created time.Time
	// NotProgrammed and NotAdvertised are the reasons, in CamelCase as in conditions. Empty:
	// all its frontends are programmed, all its addresses advertised.
	NotProgrammed, NotAdvertised string
}
