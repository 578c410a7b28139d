package reconciler

import (
	"maps"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/core/service"
)

// owner returns the Service for which a Key is programmed.
func (l *Loop) owner(k service.Key) (service.ID, bool) {
	id, ok := l.owners[k]
	return id, ok
}

// claim records which Services have their Keys according to a plan. A plan made without
// knowing the state of the data plane does not count, because that state may change the
// decision.
func (l *Loop) claim(p *plan.Plan) {
	if l.Claims == nil || l.held == nil && l.DataPlane != nil {
		return
	}
	now := make(map[service.Key]service.ID, len(p.Frontends))
	for i := range p.Frontends {
		if f := &p.Frontends[i]; f.State != plan.Conflict && f.State != plan.NotAdvertised {
			now[f.Key] = f.Service.ID
		}
	}
	if !maps.Equal(now, l.owners) {
		l.owners = now
		l.Claims.Store(now)
	}
}

// conflict is a frontend that lost its Key, and why.
type conflict struct {
	service service.ID
	key     service.Key
	reason  string
}

// logConflicts logs the conflicts that the last plan did not have.
func (l *Loop) logConflicts(p *plan.Plan) {
	now, fresh := map[conflict]bool{}, 0
	for i := range p.Frontends {
		f := &p.Frontends[i]
		if f.State != plan.Conflict {
			continue
		}
		c := conflict{f.Service.ID, f.Key, f.Reason}
		if now[c] = true; l.conflicts[c] {
			continue
		}
		if fresh++; fresh <= maxLoggedFailures {
			l.Log.Warn("frontend in conflict", "service", f.Service.ID, "frontend", f.Key, "where", f.Service.Origin, "reason", f.Reason)
		}
	}
	if fresh > maxLoggedFailures {
		l.Log.Warn("more frontends in conflict, see the status", "frontends", fresh-maxLoggedFailures)
	}
	l.conflicts = now
}
