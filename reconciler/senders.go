package reconciler

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/plan"
	"github.com/fairlead/fairlead/source"
)

// setDSRAgent configures the DSR agent: first the accepted senders, then the frontends.
// No frontend is written until the senders have been written once.
func (l *Loop) setDSRAgent(s *source.Snapshot, p *plan.Plan) error {
	err := l.setSenders(s)
	if err != nil && l.senders == nil {
		return err
	}
	return errors.Join(err, l.DSRAgent.Set(everyFrontend(p)))
}

// setSenders writes the load balancers from which packets are accepted, if they have
// changed. While the source does not know them, the kernel's state stays in force.
func (l *Loop) setSenders(s *source.Snapshot) error {
	var now []netip.Addr
	if l.CheckSenders {
		if s.Senders == nil {
			return nil
		}
		now = l.withOwn(s.Senders)
	}
	if l.senders != nil && slices.Equal(*l.senders, now) && !l.sendersFailed {
		return nil
	}
	err := l.DSRAgent.SetBalancers(now)
	if l.sendersFailed = err != nil; err == nil {
		l.senders = &now
	}
	return err
}

// withOwn adds the addresses of this node's load balancer, if there is one.
func (l *Loop) withOwn(senders []netip.Addr) []netip.Addr {
	all := append([]netip.Addr{}, senders...)
	for _, own := range l.Own {
		if l.DataPlane != nil && own.IsValid() && !slices.Contains(all, own) {
			all = append(all, own)
		}
	}
	return all
}
