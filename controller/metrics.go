package controller

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/internal/exposition"
)

var (
	leaderDesc   = desc("fairlead_controller_leader", "1 if this controller leads, else 0. Only the leader has the metrics of queues, Services and pools.")
	queueDesc    = desc("fairlead_controller_queue_depth", "Services to reconcile (addresses) and to whose EndpointSlices to write (backend-timestamps).", "queue")
	servicesDesc = desc("fairlead_controller_services", "Services of type LoadBalancer, by whether they have all requested addresses.", "assigned")
	sizeDesc     = desc("fairlead_pool_addresses", "Addresses of an AddressPool that can be assigned, by IP family.", "pool", "family")
	usedDesc     = desc("fairlead_pool_used_addresses", "Assigned addresses of an AddressPool, by IP family.", "pool", "family")
	rejectedDesc = desc("fairlead_pool_rejected", "1 if the AddressPool is rejected, else 0. Its status has the reason.", "pool")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// requests counts the requests to the API server.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRequests() requests {
	return requests{
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_controller_api_requests_total", Help: "Requests to the API server, by HTTP method and status code (error without a response).",
		}, []string{"method", "code"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_controller_api_request_duration_seconds", Help: "Time from a request to the API server to the beginning of its response.",
		}, []string{"method"}),
	}
}

// wrap counts the requests of a client.
func (r requests) wrap(to http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		began := time.Now()
		resp, err := to.RoundTrip(q)
		code := "error"
		if err == nil {
			code = strconv.Itoa(resp.StatusCode)
		}
		r.total.WithLabelValues(q.Method, code).Inc()
		r.duration.WithLabelValues(q.Method).Observe(time.Since(began).Seconds())
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Metrics serves the controller's metrics.
func (k *Controller) Metrics() http.Handler {
	return exposition.Handler(collector{k}, k.requests.total, k.requests.duration, exposition.BuildInfo("controller", k.Identity))
}

// Ready returns why the controller neither leads nor waits for the Lease, or nil.
func (k *Controller) Ready() error {
	switch why := k.unasked.Load(); {
	case why == nil:
		return errors.New("the API server has not answered yet")
	case *why != "":
		return errors.New(*why)
	case k.leads.Load() && k.term.Load() == nil:
		return errors.New("the cluster's objects have not been read yet")
	}
	return nil
}

// collector reads the state of the current term.
type collector struct{ k *Controller }

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaderDesc, queueDesc, servicesDesc, sizeDesc, usedDesc, rejectedDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	emit(leaderDesc, exposition.Bool(c.k.leads.Load()))
	t := c.k.term.Load()
	if t == nil {
		return
	}
	emit(queueDesc, float64(t.queue.Len()), "addresses")
	emit(queueDesc, float64(t.stamps.Len()), "backend-timestamps")
	assigned := map[bool]int{}
	for _, s := range t.ours(t.services.GetStore().List()) {
		has := conditionOf(s)
		assigned[has != nil && has.Status == "True"]++
	}
	emit(servicesDesc, float64(assigned[true]), "true")
	emit(servicesDesc, float64(assigned[false]), "false")
	t.emitPools(emit)
}

func (t *term) emitPools(emit func(*prometheus.Desc, float64, ...string)) {
	pools := t.allPools()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range pools {
		emit(rejectedDesc, exposition.Bool(t.refused[p.Name] != nil), p.Name)
		usage, _ := t.alloc.Usage(p.Name)
		for _, family := range []addresspool.Family{addresspool.IPv4, addresspool.IPv6} {
			if u := usage[family]; u.Total > 0 {
				emit(sizeDesc, float64(u.Total), p.Name, family.String())
				emit(usedDesc, float64(u.Used), p.Name, family.String())
			}
		}
	}
}

// counted returns a configuration whose requests are counted.
func (r requests) counted(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(r.wrap)
	return c
}
