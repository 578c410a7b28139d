package agent

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
)

// An agent's heap is what Kubernetes has, which lasts, and is at its largest during a start.
// With 50,000 Services, less growth than Go's default of 100 % saves a tenth of the memory.
// During a start, even less growth would make it slower.
const (
	startGrowth = 60
	heapGrowth  = 50
	startsFor   = time.Minute // at most
)

// saveMemory limits the heap's growth, further once the agent has started.
func (a *agent) saveMemory(ctx context.Context) {
	daemon.LetHeapGrow(startGrowth)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for a.ready().Err() != nil && time.Since(a.started) < startsFor {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	daemon.LetHeapGrow(heapGrowth)
}
