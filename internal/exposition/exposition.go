// Package exposition serves the metrics of a process to Prometheus, including those of Go
// and of the process. What is measured does not belong here. The tests of its users run
// promtool.
package exposition

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead/fairlead/internal/version"
)

// Handler serves what some collectors collect, from a registry of its own.
func Handler(of ...prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(of...)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: time.Minute})
}

// BuildInfo identifies the release and the role of this process.
func BuildInfo(role, node string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_build_info", Help: "Always 1. The labels identify the release, the role and the node.",
		ConstLabels: prometheus.Labels{"version": version.String(), "role": role, "node": node},
	}, func() float64 { return 1 })
}

// Bool returns the value of a metric that is 1 or 0.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
