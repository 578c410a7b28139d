package service

// NeedsFlowTable says that flows must be remembered: the method translates
// their way back, or the scheduler chooses anew for each.
func NeedsFlowTable(m Method, s Scheduler) bool {
	switch s {
	case RoundRobin, WeightedRoundRobin, LeastConn, WeightedLeastConn, PowerOfTwo:
		return true
	}
	return m.LeadsBack()
}

// LeadsBack says that answers come through the balancer: the server's node has
// nothing to do.
func (m Method) LeadsBack() bool { return m == NAT || m == FullNAT }

// DefaultSurvival is how flows survive where a Service does not say: by a
// second chance where that can be, which with method dr takes a server half
// that dr does without.
func (s *Service) DefaultSurvival() Survival {
	switch {
	case s.remembers() != "":
		return FlowTable
	case s.Method == DR:
		return HashOnly
	}
	return SecondChance
}

// remembers says what in s needs a flow table; nothing where none is needed.
func (s *Service) remembers() string {
	switch {
	case s.Method == NAT, s.Method == FullNAT:
		return "method " + string(s.Method)
	case NeedsFlowTable(s.Method, s.Scheduler):
		return "scheduler " + string(s.Scheduler)
	case s.Affinity > 0:
		return "affinity"
	}
	for _, f := range s.Frontends {
		for _, b := range f.Backends {
			if b.MaxConns > 0 {
				return "a limit of connections"
			}
		}
	}
	return ""
}
