package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/internal/sleep"
	"github.com/fairlead/fairlead/source/kube"
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

// nodePause is the interval at which to check whether the Node is known.
const nodePause = time.Second

// reportDegraded logs once what is missing and, in a cluster, creates an Event of the
// Node for each as soon as the Node is known.
func (a *agent) reportDegraded(ctx context.Context) {
	missing := a.degraded()
	for _, d := range missing {
		slog.Warn("degraded: the kernel rejects an optional feature", "feature", d.Feature, "component", d.Component, "error", d.Message, "lost", d.Lost)
	}
	if a.cluster == nil || len(missing) == 0 {
		return
	}
	for _, known := a.cluster.Node(); !known; _, known = a.cluster.Node() {
		if !sleep.For(ctx, nodePause) {
			return
		}
	}
	for _, d := range missing {
		a.cluster.RecordEvent(kube.Event{Reason: "Degraded", Action: "Load", Note: d.String(), Warn: true})
	}
}
