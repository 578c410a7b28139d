// Package observe shows what happens to packets: what the program would do with one and why,
// the frames that it receives and sends, and those that it drops. It changes no state that
// forwarding depends on. Decoding is tested here, the rest with the program in dataplane/xdp.
package observe

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/attach"
	"github.com/fairlead/fairlead/dataplane/xdp/program"
)

// Observer observes one data plane. It may be used from any goroutine.
type Observer struct {
	program         *program.Program
	links           *attach.Links
	reasons, states []string
	frontend        func(id uint32) (service.Key, bool)
	sample          func(mask uint32) error
	// Each of these is exclusive.
	capturing, following, tracing sync.Mutex
}

// Options are what an Observer needs of a data plane.
type Options struct {
	Program *program.Program
	Links   *attach.Links
	// Reasons are the names of drop reasons, States those of flow states, by number.
	Reasons, States []string
	// Frontend returns the frontend of a number.
	Frontend func(id uint32) (service.Key, bool)
	// Sample sets the bits of a random number that must be clear for a drop to be reported.
	Sample func(mask uint32) error
}

// New returns an Observer of an attached program.
func New(o Options) *Observer {
	return &Observer{program: o.Program, links: o.Links, reasons: o.Reasons, states: o.States, frontend: o.Frontend, sample: o.Sample}
}

// readPause is the delay until the end of a reader is noticed.
const readPause = 200 * time.Millisecond

// lockSoon waits briefly for the lock: its holder may be about to end.
func lockSoon(ctx context.Context, mu *sync.Mutex) bool {
	for end := time.Now().Add(5 * readPause); !mu.TryLock(); time.Sleep(readPause / 20) {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}
