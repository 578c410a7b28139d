// Package ui serves a read-only page of all agents: topology and rates, Services and why
// each is as it is, peers, drops, drains, problems and events. The page polls while it is
// visible; for each poll, all agents are queried in parallel, and those that do not answer
// in time are named. Without a viewer, nothing is queried.
//
// What agents answer passes through as it is: package web combines and shows it. How agents
// are reached is up to those who create them.
package ui

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/internal/design"
	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/vdn/page"
)

//go:embed web
var web embed.FS

// Defaults of Options.
const (
	DefaultListen  = "127.0.0.1:8643"
	DefaultTimeout = 5 * time.Second
)

// Options configure a server.
type Options struct {
	// Listen is where to serve. On a loopback address, only requests for loopback names
	// are answered, so that no website can read the page by DNS rebinding.
	Listen string
	Agents []*Agent
	// Timeout bounds how long an agent may take to answer.
	Timeout time.Duration
	// Networks returns the view of a VDN controller; nil without one.
	Networks func(context.Context) (any, error)
}

// Flags adds the flags of a command that serves the page.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Listen, "listen", DefaultListen, "`ADDRESS:PORT` to serve the page on")
	f.DurationVar(&o.Timeout, "timeout", DefaultTimeout, "timeout of each agent")
}

// Run serves the page until ctx ends, and prints where.
func (o Options) Run(ctx context.Context, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s\n", l.Addr())
	return httpserver.Until(ctx, &http.Server{
		Handler: Handler(o), ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
	}, l)
}

type server struct{ Options }

// Handler returns the handler of the page and of what it requests.
func Handler(o Options) http.Handler {
	s := &server{o}
	mux := http.NewServeMux()
	design.Assets(mux)
	page.Assets(mux)
	files := map[string]string{"/{$}": "web/ui.html"}
	for _, name := range []string{"ui.css", "ui.js", "views.js", "picture.js"} {
		files["/"+name] = "web/" + name
	}
	design.Files(mux, web, files)
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /api/agents": s.snapshot, "GET /api/explain": s.explain, "GET /api/drops": s.drops, "POST /api/trace": s.trace, "GET /api/networks": s.networks,
	} {
		mux.HandleFunc(pattern, answerJSON(answer))
	}
	return guard(o.Listen, http.NewCrossOriginProtection().Handler(mux))
}

// guard rejects requests for other hosts than the one that it listens on.
func guard(listen string, next http.Handler) http.Handler {
	if !loopback(listen) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) {
			http.Error(w, fmt.Sprintf("this page is local: it does not answer as %q", r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether a host, with or without a port, is a loopback address or name.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func answerJSON(answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := answer(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body, err := json.Marshal(v)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // the viewer may be gone
	}
}

// each calls f for all agents in parallel, each within the timeout, and returns the results
// in their order.
func each[T any](ctx context.Context, s *server, f func(context.Context, *Agent) T) []T {
	all := make([]T, len(s.Agents))
	var wait sync.WaitGroup
	for i, a := range s.Agents {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.Timeout)
			defer cancel()
			all[i] = f(ctx, a)
		})
	}
	wait.Wait()
	return all
}

// agent returns the agent with the name in the parameter agent.
func (s *server) agent(r *http.Request) (*Agent, error) {
	name := r.URL.Query().Get("agent")
	for _, a := range s.Agents {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("unknown agent %q", name)
}

func (s *server) networks(r *http.Request) (any, error) {
	if s.Networks == nil {
		return nil, fmt.Errorf("no controller of virtual networks is configured: pass --vdn-controller")
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
	defer cancel()
	return s.Networks(ctx)
}
