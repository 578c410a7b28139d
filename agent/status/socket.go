package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/agent/socket"
	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/logging"
	"github.com/fairlead/fairlead/internal/profile"
)

const statusPath = "/v1/status"

// Serve listens on the unix socket at path and serves the status until ctx is canceled.
func Serve(ctx context.Context, path string, get func() Status, more ...socket.Endpoint) error {
	l, err := socket.Listen(path)
	if err != nil {
		return err
	}
	return Answer(ctx, l, Everything(get), more...)
}

// Getter returns the Status of at least what is selected.
type Getter func(selection.Selection) Status

// Everything returns a Getter for a Status that costs little to gather.
func Everything(get func() Status) Getter {
	return func(only selection.Selection) Status {
		s := get()
		if only.Node {
			s.Services, s.Routes, s.Table = nil, nil, nil
		}
		return s
	}
}

// Answer serves GET /v1/status on l with the status that get returns, as JSON, and the
// additional endpoints, until ctx is canceled; then it closes l.
func Answer(ctx context.Context, l net.Listener, get Getter, more ...socket.Endpoint) error {
	return httpserver.Until(ctx, &http.Server{
		Handler: Handler(get, more...), ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
	}, l)
}

// Handler returns the handler of Serve, for callers that serve more than status.
func Handler(get Getter, more ...socket.Endpoint) http.Handler {
	mux := http.NewServeMux()
	always := ReadyEndpoint(func() Readiness { return Readiness{Ready: true, Waits: []string{}} })
	if !slices.ContainsFunc(more, func(e socket.Endpoint) bool { return e.Pattern == always.Pattern }) {
		more = append(slices.Clip(more), always)
	}
	for _, e := range more {
		mux.Handle(e.Pattern, e)
	}
	mux.HandleFunc(logging.Path, logging.Serve)
	mux.HandleFunc("GET "+profile.Path+"{name}", profile.Serve)
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, r *http.Request) {
		only, err := selection.Parse(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body, err := marshal(get(only).complete())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(body); err != nil {
			slog.Debug("status: client disconnected", "error", err)
		}
	})
	return mux
}

// Find returns the socket in a directory on which a process answers. If there are
// several, the error lists them; without one, it returns the agent's socket, so that
// connecting fails with a suitable error.
func Find(ctx context.Context, dir string) (string, error) {
	found, err := socket.All(dir)
	if err != nil {
		return "", err
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		_, err := FetchReady(ctx, path)
		return errors.Is(err, socket.ErrNoAgent)
	})
	switch len(found) {
	case 0:
		return filepath.Join(dir, "agent.sock"), nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("several answer here: pass --socket with one of %s", strings.Join(found, ", "))
}

// Fetch queries the Status of the agent at path.
func Fetch(ctx context.Context, path string) (Status, error) {
	return FetchOnly(ctx, path, selection.Selection{})
}

// FetchOnly queries the Status of what is selected. The answer may contain more.
func FetchOnly(ctx context.Context, path string, only selection.Selection) (Status, error) {
	var s Status
	target := statusPath
	if params := only.Values(); len(params) > 0 {
		target += "?" + params.Encode()
	}
	resp, err := socket.Send(ctx, path, http.MethodGet, target, nil)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the agent on %s answers %s: is it a Fairlead agent?", path, resp.Status)
	}
	err = socket.Decode(resp.Body, path, limit.Answer, &s)
	return s, err
}
