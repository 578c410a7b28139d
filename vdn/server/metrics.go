package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/exposition"
)

// metrics exports the controller's state to Prometheus.
type metrics struct {
	http.Handler
	attached prometheus.Histogram
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		attached: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_vdn_attach_seconds", Help: "Time from an attachment's request to its response, including the write to disk.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
		}),
	}
	m.Handler = exposition.Handler(m.attached, gauges{s}, exposition.BuildInfo("vdn-controller", s.name))
	return m
}

// gauges are evaluated on collection.
type gauges struct{ s *Server }

var (
	leases     = prometheus.NewDesc("fairlead_vdn_leases", "Attachments with leased addresses, by network.", []string{"network"}, nil)
	free       = prometheus.NewDesc("fairlead_vdn_pool_free_addresses", "Free addresses, including reserved ones, by network and subnet.", []string{"network", "cidr"}, nil)
	networks   = prometheus.NewDesc("fairlead_vdn_networks", "Networks of this domain.", nil, nil)
	alive      = prometheus.NewDesc("fairlead_vdn_node_alive", "1 if the node has reported recently, else 0.", []string{"node"}, nil)
	failed     = prometheus.NewDesc("fairlead_vdn_node_failed", "1 if the node could not apply its plan, else 0.", []string{"node"}, nil)
	degraded   = prometheus.NewDesc("fairlead_vdn_node_degraded", "Optional kernel features that the node works without.", []string{"node"}, nil)
	connected  = prometheus.NewDesc("fairlead_vdn_peer_connected", "1 if the last response of the peer was valid, else 0.", []string{"peer"}, nil)
	refused    = prometheus.NewDesc("fairlead_vdn_peer_rejected_networks", "Networks of a peer that are not accepted.", []string{"peer"}, nil)
	overbooked = prometheus.NewDesc("fairlead_vdn_overbooked_uplinks", "Uplinks with a lower rate than the sum of the guaranteed rates.", nil, nil)
	storeUp    = prometheus.NewDesc("fairlead_vdn_store_up", "1 if the controller can use its store, else 0.", nil, nil)
	leading    = prometheus.NewDesc("fairlead_vdn_leader", "1 if the controller leads: it queries other domains and follows a cluster, else 0.", nil, nil)
	revision   = prometheus.NewDesc("fairlead_vdn_revision", "Revision of the state; it grows with each change.", nil, nil)
)

func (g gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leases, free, networks, alive, failed, degraded, connected, refused, overbooked, storeUp, leading, revision} {
		to <- d
	}
}

func (g gauges) Collect(to chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	v, left := g.s.View(), g.s.store.Free()
	count := map[string]int{}
	for _, a := range v.Attachments {
		count[a.Network]++
	}
	for _, n := range v.Networks {
		emit(leases, float64(count[n.Name]), n.Name)
		for i, s := range n.Subnets {
			if i < len(left[n.Name]) {
				emit(free, left[n.Name][i], n.Name, s.CIDR.String())
			}
		}
	}
	for _, n := range v.Nodes {
		emit(alive, exposition.Bool(n.Alive), n.Name)
		emit(failed, exposition.Bool(n.Error != ""), n.Name)
		emit(degraded, float64(len(n.Degraded)), n.Name)
	}
	for _, p := range v.Peers {
		emit(connected, exposition.Bool(p.Connected), p.Domain)
		no := 0
		for _, n := range p.Networks {
			if n.Refused != "" {
				no++
			}
		}
		emit(refused, float64(no), p.Domain)
	}
	emit(networks, float64(len(v.Networks)))
	emit(overbooked, float64(len(v.Notes)))
	emit(storeUp, exposition.Bool(g.s.store.Err() == nil))
	emit(leading, exposition.Bool(g.s.leads.Load()))
	emit(revision, float64(v.Revision))
}
