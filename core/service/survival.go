package service

// NeedsFlowTable reports whether flows must be tracked: because the method translates
// replies, or because the scheduler decides per flow.
func NeedsFlowTable(m Method, s Scheduler) bool {
	switch s {
	case RoundRobin, WeightedRoundRobin, LeastConn, WeightedLeastConn, PowerOfTwo:
		return true
	}
	return m.LeadsBack()
}

// LeadsBack reports whether replies pass through the load balancer, so that the backend's
// node needs no DSR agent.
func (m Method) LeadsBack() bool { return m == NAT || m == FullNAT }

// DefaultSurvival returns the default connection consistency: second chance if possible.
// With method dr, second chance would require a DSR agent that dr otherwise does without,
// so the default there is hash only.
func (s *Service) DefaultSurvival() Survival {
	switch {
	case s.remembers() != "":
		return FlowTable
	case s.Method == DR:
		return HashOnly
	}
	return SecondChance
}

// remembers says what in s requires a flow table, or returns "".
func (s *Service) remembers() string {
	switch {
	case s.Method == NAT, s.Method == FullNAT:
		return "forwarding mode " + string(s.Method)
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
