package status

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/histogram"
)

// ServiceProxy summarizes a service proxy in counts, because there may be very many
// Services.
type ServiceProxy struct {
	// Attached lists where programs are attached, and how, one line each.
	Attached []string `json:"attached,omitempty"`
	// Loaded means that the objects of the cluster have been read.
	Loaded bool `json:"loaded"`
	// Synced means that the kernel is as desired, except for frontends in Refused.
	Synced bool `json:"synced"`
	// Healthy is the answer to health checks (/healthz).
	Healthy bool `json:"healthy"`
	// Services is the number of Services.
	Services int `json:"services"`
	// Frontends is the number of frontends.
	Frontends int `json:"frontends"`
	// Unwritten is the number of frontends that are not programmed yet.
	Unwritten int `json:"unwritten"`
	// Refused is the number of frontends that cannot be programmed. They are among the
	// problems.
	Refused int `json:"rejected"`
	// Changes counts the changes received from the API server.
	Changes uint64 `json:"changes"`
	// Writes counts the updates of the kernel.
	Writes uint64 `json:"writes"`
	// Entries counts the map entries written or deleted. Entries that are already correct
	// are not written.
	Entries uint64 `json:"entries"`
	// LastSync is when the kernel last became as desired.
	LastSync time.Time `json:"lastSync"`
	// DelayP50 is the median latency of recent changes, from notification to write.
	DelayP50 time.Duration `json:"delayP50"`
	// DelayP99 is the 99th percentile of the same.
	DelayP99 time.Duration `json:"delayP99"`
	// Delays counts the delays of all changes by duration.
	Delays histogram.Histogram `json:"delays"`
	// Failures counts failed writes.
	Failures uint64 `json:"failures"`
	// Error is why the latest write failed.
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
		p.Changes, p.Writes, Age(p.LastSync, v.Time), p.DelayP50, p.DelayP99))
	if p.Error != "" {
		t.fact("error", p.Error)
	}
	t.fact("drops", tally(nonzero(p.Drops)))
}
