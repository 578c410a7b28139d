// Package server answers for a domain's virtually dedicated networks by REST: it
// gives out addresses, tells nodes what to do, and shows what there is. What it
// must not forget is in vdn/store; what nodes report every second is in memory.
package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/webserve"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/access"
	"github.com/fairlead/fairlead/vdn/audit"
	"github.com/fairlead/fairlead/vdn/store"
)

// Options are what a Server is made of.
type Options struct {
	// Store is open, and stays so for as long as the server is used.
	Store *store.Store
	// Name distinguishes this controller from others of its domain; the host's where empty.
	Name string
	// Tokens are asked of everything below /v1, as a bearer's; where nil anybody may do
	// everything.
	Tokens access.Finder
	// Audit has who changed what; nothing is written where nil.
	Audit *audit.Log
	// Elsewhere says who alone makes and changes networks ("the cluster's
	// VirtualNetworks: kubectl apply"); where it is empty whoever asks may.
	Elsewhere string
	// Page is what is shown at /, nothing where nil.
	Page http.Handler
	Log  *slog.Logger // slog.Default() where nil
	// Now is the clock; time.Now where nil.
	Now func() time.Time
}

// Server is the controller but for its listeners. Its methods may be called
// concurrently.
type Server struct {
	store  *store.Store
	name   string
	leads  atomic.Bool
	log    *slog.Logger
	now    func() time.Time
	tokens access.Finder
	audit  *audit.Log
	// elsewhere is as in Options.
	elsewhere string
	handler   http.Handler
	reports   reports
	recent    recent
	metrics   *metrics
}

// New makes one that answers as an http.Handler.
func New(o Options) *Server {
	s := &Server{store: o.Store, name: o.Name, log: o.Log, now: o.Now, tokens: o.Tokens, audit: o.Audit, elsewhere: o.Elsewhere}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.name == "" {
		s.name, _ = os.Hostname() // a name is for people
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.reports.began = s.now()
	s.metrics = newMetrics(s)
	s.handler = s.routes(o.Page)
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers on a listener until ctx ends; those who wait for news are
// answered that there is none.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		// Who waits for news must not be cut off, who sends or reads drop by drop must.
		ReadTimeout: maxWait + time.Minute, WriteTimeout: maxWait + time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return webserve.Until(ctx, srv, l)
}

// Peers are the domains that networks are exchanged with, with what they offered
// last.
func (s *Server) Peers() []vdn.PeerView { return s.store.Peers() }

// SetOffers notes what peers offer, and whether they are connected; those that are
// not named stay as they are. Which of their networks count is decided here
// (vdn.Accept).
func (s *Server) SetOffers(ctx context.Context, offers []vdn.PeerView) error {
	return s.store.SetOffers(ctx, offers)
}

// Offer is what a domain is told, and the revision after which it may be another.
func (s *Server) Offer(domain string) (vdn.Offer, uint64) {
	state, attachments := s.store.State("")
	return vdn.OfferFor(state, domain, attachments), state.Revision
}

// Lead runs what only one controller of a domain may do, while this one leads, until
// ctx ends or that fails.
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

// Wait waits until the revision is another than the one named, or ctx ends; it
// gives the present one.
func (s *Server) Wait(ctx context.Context, after uint64) uint64 { return s.store.Wait(ctx, after) }
