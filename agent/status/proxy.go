package status

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/problem"
)

// ServiceProxy is what a service proxy holds, in numbers: there may be very many
// Services.
type ServiceProxy struct {
	// Attached says where it serves and how, a line each.
	Attached []string `json:"attached,omitempty"`
	// Loaded says that the cluster has been read, Synced that the kernel holds
	// everything as it should be, but what it has no room for.
	Loaded  bool `json:"loaded"`
	Synced  bool `json:"synced"`
	Healthy bool `json:"healthy"`
	// Services and Frontends are known; Unwritten frontends are not yet held as
	// they should be, Refused ones cannot be and are among the Status' problems.
	Services  int `json:"services"`
	Frontends int `json:"frontends"`
	Unwritten int `json:"unwritten"`
	Refused   int `json:"refused"`
	// Changes counts what the cluster has told, Writes how often something was
	// given to the kernel.
	Changes uint64 `json:"changes"`
	Writes  uint64 `json:"writes"`
	// Entries counts those of the kernel's maps that were written or deleted; one
	// that is as it should be is left alone.
	Entries  uint64    `json:"entries"`
	LastSync time.Time `json:"lastSync"`
	// DelayP50 and DelayP99 are from when a change was told until it was written,
	// of the recent ones, in nanoseconds.
	DelayP50 time.Duration `json:"delayP50"`
	DelayP99 time.Duration `json:"delayP99"`
	// Error is why the last write failed.
	Error string `json:"error,omitempty"`
	// Drops are packets dropped, by the name of the reason.
	Drops map[string]uint64 `json:"drops,omitempty"`
	// Problems are among the Status'.
	Problems []problem.Problem `json:"-"`
}

func (v overview) serviceProxy(t *table) {
	p := v.ServiceProxy
	state := "all is written"
	if !p.Synced {
		state = fmt.Sprintf("%d frontends are not written", p.Unwritten)
	}
	if p.Refused > 0 {
		state += fmt.Sprintf(" but %d that are refused", p.Refused)
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
