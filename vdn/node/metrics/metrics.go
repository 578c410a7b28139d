// Package metrics exports the Status of a node's daemon to Prometheus.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/exposition"
	"github.com/fairlead/fairlead/vdn/node"
)

// Handler serves the current result of get.
func Handler(get func() node.Status) http.Handler {
	return exposition.Handler(gauges(get), exposition.BuildInfo("vdn-agent", get().Name))
}

var (
	reachable   = desc("controller_reachable", "1 if the controller answered the last request, else 0.", "url")
	unreachable = desc("controllers_unreachable_seconds", "Time for which no controller has answered; 0 if one does. Enforcement continues.")
	cached      = desc("plan_cached", "1 if the plan is the one on the node's disk and no controller has confirmed it since, else 0.")
	plan        = desc("plan_revision", "Revision of the newest plan; 0 before the first.")
	applied     = desc("applied_revision", "Revision of the plan that was applied last.")
	failed      = desc("plan_failed", "1 if the newest plan is not completely enforced, else 0.")
	degraded    = desc("degraded", "Optional kernel features that the node works without.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_vdn_agent_"+name, help, labels, nil)
}

// gauges are evaluated on collection.
type gauges func() node.Status

// Describe implements prometheus.Collector.
func (gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{reachable, unreachable, cached, plan, applied, failed, degraded} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	s := g()
	emit := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, c := range s.Controllers {
		emit(reachable, exposition.Bool(c.Reachable), c.URL)
	}
	var silent float64
	if !s.Reachable && !s.Since.IsZero() {
		silent = time.Since(s.Since).Seconds()
	}
	emit(unreachable, silent)
	emit(cached, exposition.Bool(s.Cached))
	emit(plan, float64(s.Plan))
	emit(applied, float64(s.Applied))
	emit(failed, exposition.Bool(s.Error != ""))
	emit(degraded, float64(len(s.Degraded)))
}
