// Package server is the VDN controller: a REST API that leases addresses, computes the
// plans of nodes, and shows the state of a domain. Persistent state is in vdn/store; the
// frequent reports of nodes are only in memory.
package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/audit"
	"github.com/fairlead/fairlead/vdn/store"
)

// Options configure a Server.
type Options struct {
	// Store must stay open while the server is in use.
	Store *store.Store
	// Name distinguishes this controller from others of its domain; default is the
	// hostname.
	Name string
	// Tokens authenticates bearer tokens for everything below /v1. If nil, everything is
	// permitted to everyone.
	Tokens access.Finder
	// Audit logs changes; nil for no log.
	Audit *audit.Log
	// Elsewhere names what manages the networks if this API may not ("the cluster's
	// VirtualNetworks: kubectl apply"). If empty, clients may change networks.
	Elsewhere string
	// Page serves /; nil for none.
	Page http.Handler
	Log  *slog.Logger // nil means slog.Default()
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server is the controller without its listeners. Its methods are safe for concurrent use.
type Server struct {
	store  *store.Store
	name   string
	leads  atomic.Bool
	log    *slog.Logger
	now    func() time.Time
	tokens access.Finder
	audit  *audit.Log
	// elsewhere is Options.Elsewhere.
	elsewhere string
	handler   http.Handler
	reports   reports
	recent    recent
	metrics   *metrics
}

// New creates a Server, which is an http.Handler.
func New(o Options) *Server {
	s := &Server{store: o.Store, name: o.Name, log: o.Log, now: o.Now, tokens: o.Tokens, audit: o.Audit, elsewhere: o.Elsewhere}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.name == "" {
		s.name, _ = os.Hostname() // only for display
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.reports.began = s.now()
	s.metrics = newMetrics(s)
	s.handler = s.routes(o.Page)
	return s
}

// ServeHTTP handles one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve serves a listener until ctx ends. Clients that wait for changes then get a response
// without changes.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		// Long enough for clients that wait for changes, but bounded for slow senders and
		// readers.
		ReadTimeout: maxWait + time.Minute, WriteTimeout: maxWait + time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return httpserver.Until(ctx, srv, l)
}

// Peers returns the domains that networks are exchanged with, with their last offers.
func (s *Server) Peers() []vdn.PeerView { return s.store.Peers() }

// SetOffers stores the offers of peers and whether they are connected. Peers that are not
// named stay unchanged. vdn.Accept decides which of their networks are accepted.
func (s *Server) SetOffers(ctx context.Context, offers []vdn.PeerView) error {
	return s.store.SetOffers(ctx, offers)
}

// Offer returns the offer for a domain, and the revision that it is based on.
func (s *Server) Offer(domain string) (vdn.Offer, uint64) {
	state, attachments := s.store.State("")
	return vdn.OfferFor(state, domain, attachments), state.Revision
}

// Lead runs what only one controller of a domain may do while this one is the leader, until
// ctx ends or run fails.
func (s *Server) Lead(ctx context.Context, run func(context.Context) error) (failed error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.store.Lead(ctx, s.name, func(ctx context.Context) {
		s.leads.Store(true)
		defer s.leads.Store(false)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			failed = err
			stop()
		}
	})
	return failed
}

// Wait waits until the revision differs from the given one, or ctx ends, and returns the
// current one.
func (s *Server) Wait(ctx context.Context, after uint64) uint64 { return s.store.Wait(ctx, after) }
