// Package metrics exports a Status to Prometheus: every metric is computed from the same
// value that fairlead status shows, at the time of the scrape. all.go lists them.
package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/internal/histogram"
	"github.com/fairlead/fairlead/internal/httpserver"
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

// collector computes all metrics from a Status.
type collector struct {
	get   func() status.Status
	descs []*prometheus.Desc // of All, then of Histograms
}

func newCollector(get func() status.Status) *collector {
	c := &collector{get: get}
	for _, m := range All {
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
	for i, m := range All {
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
			out <- prometheus.MustNewConstHistogram(c.descs[len(All)+i], count, h.Sum.Seconds(), buckets)
		}
	}
}

// Handler serves the metrics of the status that get returns, and the Go and process
// metrics, from its own registry.
func Handler(get func() status.Status) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(newCollector(get), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: time.Minute})
}

// Listen opens the socket for Serve.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	return l, nil
}

// Serve serves GET /metrics until ctx is canceled, and closes l.
func Serve(ctx context.Context, l net.Listener, get func() status.Status) error {
	return ServeHandler(ctx, l, Handler(get))
}

// ServeHandler is like Serve with a different handler.
func ServeHandler(ctx context.Context, l net.Listener, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	if err := httpserver.Until(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, l); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
