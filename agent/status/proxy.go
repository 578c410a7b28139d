package status

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/problem"
)

// ServiceProxy summarizes a service proxy in counts, because there may be very many
// Services.
type ServiceProxy struct {
	// Attached lists where it is attached and how, one line each.
	Attached []string `json:"attached,omitempty"`
	// Loaded means that the cluster has been read, Synced that the kernel has everything
	// as desired, except what it has no room for.
	Loaded  bool `json:"loaded"`
	Synced  bool `json:"synced"`
	Healthy bool `json:"healthy"`
	// Services and Frontends count what is known. Unwritten counts frontends that are not
	// yet programmed as desired, Refused those that cannot be, which are among the
	// Status's problems.
	Services  int `json:"services"`
	Frontends int `json:"frontends"`
	Unwritten int `json:"unwritten"`
	Refused   int `json:"rejected"`
	// Changes counts the changes from the cluster, Writes the writes to the kernel.
	Changes uint64 `json:"changes"`
	Writes  uint64 `json:"writes"`
	// Entries counts the kernel map entries written or deleted. Entries that are already
	// correct are not written.
	Entries  uint64    `json:"entries"`
	LastSync time.Time `json:"lastSync"`
	// DelayP50 and DelayP99 are the latencies of recent changes from notification to
	// write, in nanoseconds.
	DelayP50 time.Duration `json:"delayP50"`
	DelayP99 time.Duration `json:"delayP99"`
	// Error is why the last write failed.
	Error string `json:"error,omitempty"`
	// Drops counts dropped packets by reason.
	Drops map[string]uint64 `json:"drops,omitempty"`
	// Problems are included in those of the Status.
	Problems []problem.Problem `json:"-"`
}

func (v overview) serviceProxy(t *table) {
	p := v.ServiceProxy
	state := "all is written"
	if !p.Synced {
		state = fmt.Sprintf("%d frontends are not written", p.Unwritten)
	}
	if p.Refused > 0 {
		state += fmt.Sprintf(" but %d that are rejected", p.Refused)
	}
	t.fact("service proxy", fmt.Sprintf("%d services, %d frontends, %s", p.Services, p.Frontends, state))
	for _, a := range p.Attached {
		t.fact("", a)
	}
	t.fact("changes", fmt.Sprintf("%d in %d writes, the last %s ago; delay %s, 99 %% within %s",
		p.Changes, p.Writes, age(p.LastSync, v.Time), p.DelayP50, p.DelayP99))
	if p.Error != "" {
		t.fact("error", p.Error)
	}
	t.fact("drops", tally(nonzero(p.Drops)))
}
