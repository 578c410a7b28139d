package agent

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/daemon"
)

// A started agent's heap is what Kubernetes has, which lasts. With 50,000 Services, half of
// Go's default heap growth saves a tenth of the memory. It would make a start a tenth slower.
const (
	heapGrowth = 50
	startsFor  = time.Minute // at most
)

// saveMemory limits the heap's growth once the agent has started.
func (a *agent) saveMemory(ctx context.Context) {
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
