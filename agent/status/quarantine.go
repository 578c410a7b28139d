package status

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// Quarantine is an operator's order to drain a backend.
type Quarantine struct {
	// Name is the name of the Quarantine.
	Name string `json:"name"`
	// By is who drains the backend.
	By string `json:"by,omitempty"`
	// Reason is why.
	Reason string `json:"reason,omitempty"`
	// Since is when the drain began.
	Since time.Time `json:"since,omitzero"`
}

func quarantineOf(q *service.Quarantine) *Quarantine {
	if q == nil {
		return nil
	}
	return &Quarantine{Name: q.Name, By: q.By, Reason: q.Reason, Since: q.Since}
}

// Why returns "drained by alice since 2026-11-28T23:00:00Z: disk errors".
func (q *Quarantine) Why() string {
	order := service.Quarantine{By: q.By, Reason: q.Reason, Since: q.Since}
	return order.Why()
}

// reason returns why the backend gets no new flows, as far as it is known.
func (b Backend) reason() string {
	if b.Quarantine == nil {
		return b.LastError
	}
	if b.LastError == "" {
		return b.Quarantine.Why()
	}
	return b.Quarantine.Why() + "; " + b.LastError
}

// quarantines lists the backends that operators drain, each once.
func (s Status) quarantines() (all []string) {
	for _, b := range s.allBackends() {
		if b.Quarantine == nil {
			continue
		}
		if line := b.Address.String() + " " + b.Quarantine.Why(); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}
