package agent

import (
	"log/slog"

	"github.com/fairlead/fairlead/internal/features"
)

// degraded lists the optional kernel features that the agent's components run without.
func (a *agent) degraded() (all []features.Degraded) {
	all = append(all, a.noXDP...)
	if a.xdp != nil {
		all = append(all, a.xdp.Degraded()...)
	}
	if a.dsr != nil {
		all = append(all, a.dsr.Degraded()...)
	}
	if a.proxy != nil {
		all = append(all, a.proxy.degraded()...)
	}
	return all
}

func (p *serviceProxy) degraded() (all []features.Degraded) {
	if p.plane != nil {
		all = append(all, p.plane.Degraded()...)
	}
	if p.packets != nil {
		all = append(all, p.packets.Degraded()...)
	}
	return all
}

// logDegraded logs what is missing.
func (a *agent) logDegraded() {
	for _, d := range a.degraded() {
		slog.Warn("degraded: the kernel rejects an optional feature", "feature", d.Feature, "component", d.Component, "error", d.Message, "lost", d.Lost)
	}
}
