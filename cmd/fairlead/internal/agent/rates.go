package agent

import (
	"errors"
	"strings"

	"github.com/fairlead/fairlead/agent/rates"
	"github.com/fairlead/fairlead/agent/socket"
)

// ratesEndpoint serves rates of what the agent forwards.
func (a *agent) ratesEndpoint() socket.Endpoint {
	return socket.Endpoint{Pattern: "GET " + rates.Path, Handler: rates.New(rates.Config{Status: a.statusSource, Dropped: a.dropped})}
}

// dropped returns how many packets every part of the agent has dropped.
func (a *agent) dropped() (map[rates.Cause]uint64, error) {
	all, errs := map[rates.Cause]uint64{}, []error{}
	if a.plane != nil {
		for reason, n := range a.plane.Describe().Drops {
			all[rates.Cause{At: "balancer", Reason: reason}] = n
		}
	}
	if a.dsr != nil {
		outcomes, err := a.dsr.Counters()
		errs = append(errs, err)
		for outcome, n := range outcomes {
			if strings.HasPrefix(outcome, "dropped-") { // documented with the prefix
				all[rates.Cause{At: "dsr", Reason: outcome}] = n
			}
		}
	}
	if a.proxy != nil {
		for reason, n := range a.proxy.packets.Describe().Drops {
			all[rates.Cause{At: "proxy", Reason: reason}] = n
		}
	}
	return all, errors.Join(errs...)
}
