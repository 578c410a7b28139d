package engine

import (
	"time"

	"github.com/fairlead/fairlead/advertise/bgp/internal/tcp"
)

const signatureEvery = 5 * time.Second

// watchSignatures logs when segments are dropped because their TCP MD5 signature is wrong
// or missing: the sender only sees a timeout. The kernel counts them for the complete
// network namespace.
func (e *Engine) watchSignatures() {
	defer e.wg.Done()
	before, err := tcp.BadSignatures()
	if err != nil {
		return // no /proc: cannot be checked
	}
	tick := time.NewTicker(signatureEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
		if now, err := tcp.BadSignatures(); err == nil && now > before {
			e.Log.Warn("segments were dropped for their TCP MD5 signature: a neighbor's password is missing, unexpected or different", "dropped", now-before)
			before = now
		}
	}
}
