// Package healthport serves HTTP like kube-proxy v1.36 (pkg/proxy/healthcheck): for load
// balancers that check whether this node has endpoints of a Service
// (healthCheckNodePort), and for health checks of the service proxy.
package healthport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/httpserver"
)

// DefaultRetry is a good value of Config.Retry.
const DefaultRetry = 5 * time.Second

// readTimeout is how long a client may take for its request.
const readTimeout = 5 * time.Second

// Config configures a Server.
type Config struct {
	// Addresses are the node's addresses to listen on; none for all.
	Addresses []netip.Addr
	// Healthy reports whether the service proxy is healthy; normally a Healthz's
	// method. While it is not, no Service has endpoints here.
	Healthy func() bool
	// Retry is the interval at which failed listens are retried.
	Retry time.Duration
	Log   *slog.Logger
}

// Server listens on the health check node ports of Services.
type Server struct {
	Config
	mu     sync.Mutex
	ports  map[service.ID]*port
	closed bool
}

// port is that of one Service.
type port struct {
	check     proxy.HealthCheck
	listeners []listener
	// err is why it has no listener.
	err error
}

type listener struct {
	net.Listener
	http *http.Server
}

// New returns a server without listeners.
func New(c Config) *Server { return &Server{Config: c, ports: map[service.ID]*port{}} }

// Run retries failed listens until ctx ends, then closes all listeners.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(s.Retry)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.retry()
			s.mu.Unlock()
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.closed = true
			for _, p := range s.ports {
				p.close()
			}
			return nil
		}
	}
}

// Set replaces the check of a Service; the zero value removes it. A failed listen is a
// problem, and is retried.
func (s *Server) Set(id service.ID, c proxy.HealthCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[id]
	if p == nil {
		p = &port{}
		s.ports[id] = p
	}
	was := p.check
	p.check = c
	if was.Port == c.Port && was.IPv4 == c.IPv4 && was.IPv6 == c.IPv6 {
		return
	}
	p.close()
	if c.Port == 0 {
		delete(s.ports, id)
	} else {
		s.open(id, p)
	}
	s.retry() // another Service may have waited for the port
}

// retry opens the ports that failed before.
func (s *Server) retry() {
	for id, p := range s.ports {
		if p.err != nil {
			s.open(id, p)
		}
	}
}

// open listens on all addresses of the Service's families, or on none.
func (s *Server) open(id service.ID, p *port) {
	if s.closed {
		return
	}
	was := p.err
	p.err = nil
	for _, a := range s.addresses(p.check) {
		network := map[bool]string{true: "tcp4", false: "tcp6"}[a.Is4()]
		l, err := net.Listen(network, netip.AddrPortFrom(a, p.check.Port).String())
		if err != nil {
			p.close()
			p.err = err
			if was == nil {
				s.Log.Warn("failed to listen on a health check node port, will retry", "service", id, "error", err)
			}
			return
		}
		srv := httpserver.Bound(&http.Server{Handler: s.answer(id, a.Is4()), ReadHeaderTimeout: readTimeout})
		p.listeners = append(p.listeners, listener{l, srv})
		go func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.Log.Error("health check node port stopped", "service", id, "error", err)
			}
		}()
	}
}

func (s *Server) addresses(c proxy.HealthCheck) []netip.Addr {
	all := s.Addresses
	if len(all) == 0 {
		all = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.Is4() && !c.IPv4 || a.Is6() && !c.IPv6 })
}

func (p *port) close() {
	for _, l := range p.listeners {
		l.Close() // http.Close would not, before Serve is called
		l.http.Close()
	}
	p.listeners = nil
}

// answer is the body of a response.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// answer responds for a Service in one family, to any request.
func (s *Server) answer(id service.ID, is4 bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		a := answer{LocalEndpoints: s.ready(id, is4), ServiceProxyHealthy: s.Healthy()}
		a.Service.Namespace, a.Service.Name = id.Namespace, id.Name
		body, err := json.MarshalIndent(a, "", "\t")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
		reply(w, a.LocalEndpoints > 0 && a.ServiceProxyHealthy, body)
	}
}

func (s *Server) ready(id service.ID, is4 bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[id]
	switch {
	case p == nil:
		return 0
	case is4:
		return p.check.Ready4
	}
	return p.check.Ready6
}

func reply(w http.ResponseWriter, good bool, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write(body) // an error means that the client is gone
}

// Problems returns the ports without a listener, sorted by Service.
func (s *Server) Problems() []proxy.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []proxy.Problem
	for id, p := range s.ports {
		if p.err != nil {
			all = append(all, proxy.OfService(id, "spec.healthCheckNodePort",
				"load balancers cannot ask this node: %s; free the port, or give the Service another", p.err))
		}
	}
	slices.SortFunc(all, func(a, b proxy.Problem) int { return cmp.Compare(a.String(), b.String()) })
	return all
}
