// Package metrics shows a Status to Prometheus: every metric is read off the one
// value that fairlead status shows, when it is asked for. all.go lists them.
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
	"github.com/fairlead/fairlead/internal/webserve"
)

// Metric is one that there may be.
type Metric struct {
	Name, Help string
	Labels     []string
	// Counter says that it only grows, but for restarts; else it is a gauge.
	Counter bool
	read    func(s *status.Status, emit emit)
}

// emit is given a value with those of the labels.
type emit func(value float64, labels ...string)

// collector reads all metrics off a Status.
type collector struct {
	get   func() status.Status
	descs []*prometheus.Desc
}

func newCollector(get func() status.Status) *collector {
	c := &collector{get: get}
	for _, m := range All {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	return c
}

// Describe tells which there may be; Prometheus' word, as is Collect.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect gives the values now.
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
}

// Handler answers with what get says, and with what Go and the kernel say of the
// process, from a registry of its own.
func Handler(get func() status.Status) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(newCollector(get), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: time.Minute})
}

// Listen makes the socket on which Serve answers.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	return l, nil
}

// Serve answers GET /metrics until ctx ends, and closes l.
func Serve(ctx context.Context, l net.Listener, get func() status.Status) error {
	return ServeHandler(ctx, l, Handler(get))
}

// ServeHandler is Serve with metrics of another kind.
func ServeHandler(ctx context.Context, l net.Listener, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	if err := webserve.Until(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, l); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
