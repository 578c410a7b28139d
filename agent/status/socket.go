package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/agent/selection"
	"github.com/fairlead/fairlead/internal/httpserver"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/logging"
	"github.com/fairlead/fairlead/internal/profile"
	"github.com/fairlead/fairlead/internal/unixsocket"
)

// SocketDir is the default directory of the sockets of agents, reflectors and routers,
// each named after its role.
const SocketDir = "/run/fairlead"

// Socket returns the default socket of a role.
func Socket(role string) string { return filepath.Join(SocketDir, role+".sock") }

const statusPath = "/v1/status"

var (
	// ErrNoAgent means that nothing listens on the socket.
	ErrNoAgent = errors.New("is it running? pass --socket if it answers elsewhere")
	// ErrInUse means that another process already listens on the socket.
	ErrInUse = unixsocket.ErrInUse
)

// Serve listens on the unix socket at path and serves the status until ctx is canceled.
func Serve(ctx context.Context, path string, get func() Status, more ...Endpoint) error {
	l, err := Listen(path)
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

// Listen creates the unix socket at path, to which only its owner may connect. It
// replaces the socket file of a dead agent, but not that of a running one (ErrInUse).
func Listen(path string) (net.Listener, error) {
	l, err := unixsocket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return l, nil
}

// Endpoint is an additional endpoint on the socket.
type Endpoint struct {
	// Pattern is a pattern of http.ServeMux: "POST /v1/trace".
	Pattern string
	http.Handler
}

// Answer serves GET /v1/status on l with the status that get returns, as JSON, and the
// additional endpoints, until ctx is canceled; then it closes l.
func Answer(ctx context.Context, l net.Listener, get Getter, more ...Endpoint) error {
	return httpserver.Until(ctx, &http.Server{
		Handler: Handler(get, more...), ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
	}, l)
}

// Handler returns the handler of Serve, for callers that serve more than status.
func Handler(get Getter, more ...Endpoint) http.Handler {
	mux := http.NewServeMux()
	always := ReadyEndpoint(func() Readiness { return Readiness{Ready: true, Waits: []string{}} })
	if !slices.ContainsFunc(more, func(e Endpoint) bool { return e.Pattern == always.Pattern }) {
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
	found, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	if err != nil {
		return "", err
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		_, err := FetchReady(ctx, path)
		return errors.Is(err, ErrNoAgent)
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
	resp, err := send(ctx, path, http.MethodGet, target, nil)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the agent on %s answers %s: is it a Fairlead agent?", path, resp.Status)
	}
	err = decode(resp.Body, path, limit.Answer, &s)
	return s, err
}

// decode decodes the JSON answer of an agent, limited to most bytes.
func decode(from io.Reader, path string, most int64, into any) error {
	if err := json.NewDecoder(limit.NewReader(from, "its answer", most)).Decode(into); err != nil {
		return fmt.Errorf("the agent on %s answers what this version does not understand: %w", path, err)
	}
	return nil
}

// Ask calls an endpoint of the agent at path and returns the body of the answer, which
// the caller must close. An error response becomes an error with its text.
func Ask(ctx context.Context, path, method, target string, body io.Reader) (io.ReadCloser, error) {
	resp, err := send(ctx, path, method, target, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	const enough = 4096
	words, _ := io.ReadAll(io.LimitReader(resp.Body, enough))
	if text := strings.TrimSpace(string(words)); text != "" && resp.StatusCode != http.StatusNotFound {
		return nil, errors.New(text)
	}
	return nil, fmt.Errorf("the agent on %s does not know %s: it is of another role or version", path, strings.SplitN(target, "?", 2)[0])
}

func send(ctx context.Context, path, method, target string, body io.Reader) (*http.Response, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+target, body)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fetchError(path, err)
	}
	return resp, nil
}

func fetchError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent answers on %s: %w", path, ErrNoAgent)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the agent's socket %s may only be opened by its owner: run this as the agent's user, mostly root", path)
	}
	return fmt.Errorf("asking the agent on %s: %w", path, err)
}
