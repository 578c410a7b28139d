// Package metrics exports a Status to Prometheus: every metric is computed from the same
// value that fairlead status shows, at the time of the scrape. all.go lists them.
package metrics

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/exposition"
	"github.com/fairlead/fairlead/internal/histogram"
)

// Metric is a metric that may be exported.
type Metric struct {
	Name, Help string
	Labels     []string
	// Counter means that it only grows, except for restarts; otherwise it is a gauge.
	Counter bool
	read    func(s *status.Status, emit emit)
}

// Distribution is a histogram that may be exported.
type Distribution struct {
	Name, Help string
	// read returns nil where the histogram does not apply.
	read func(s *status.Status) *histogram.Histogram
}

// emit receives a value and its label values.
type emit func(value float64, labels ...string)

// Options select what is exported.
type Options struct {
	// Backends exports metrics of each backend of each frontend.
	Backends bool
}

// collector computes all metrics from a Status.
type collector struct {
	get     func() status.Status
	metrics []Metric
	descs   []*prometheus.Desc // of metrics, then of Histograms
}

func newCollector(get func() status.Status, o Options) *collector {
	c := &collector{get: get, metrics: All}
	if o.Backends {
		c.metrics = slices.Concat(All, Backends)
	}
	for _, m := range c.metrics {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	for _, d := range Histograms {
		c.descs = append(c.descs, prometheus.NewDesc(d.Name, d.Help, nil, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.get()
	for i, m := range c.metrics {
		kind := prometheus.GaugeValue
		if m.Counter {
			kind = prometheus.CounterValue
		}
		m.read(&s, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(c.descs[i], kind, value, labels...)
		})
	}
	for i, d := range Histograms {
		if h := d.read(&s); h != nil {
			count, buckets := h.Cumulative()
			out <- prometheus.MustNewConstHistogram(c.descs[len(c.metrics)+i], count, h.Sum.Seconds(), buckets)
		}
	}
}

// Handler serves the metrics of the status that get returns.
func Handler(get func() status.Status, o Options) http.Handler {
	return exposition.Handler(newCollector(get, o))
}
