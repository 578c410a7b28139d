// Package socket is how commands and daemons of a node talk: HTTP on a unix socket. What is
// served there belongs to the packages that serve it.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/internal/unixsocket"
)

// Dir is the default directory of the sockets of agents, reflectors and routers,
// each named after its role.
const Dir = "/run/fairlead"

// Default returns the default socket of a role.
func Default(role string) string { return filepath.Join(Dir, role+".sock") }

// All returns the sockets in a directory.
func All(dir string) ([]string, error) { return filepath.Glob(filepath.Join(dir, "*.sock")) }

var (
	// ErrNoAgent means that nothing listens on the socket.
	ErrNoAgent = errors.New("is it running? pass --socket if it answers elsewhere")
	// ErrInUse means that another process already listens on the socket.
	ErrInUse = unixsocket.ErrInUse
)

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

// Decode decodes the JSON answer of the agent at path, limited to most bytes.
func Decode(from io.Reader, path string, most int64, into any) error {
	if err := json.NewDecoder(limit.NewReader(from, "its answer", most)).Decode(into); err != nil {
		return fmt.Errorf("the agent on %s answers what this version does not understand: %w", path, err)
	}
	return nil
}

// Ask calls an endpoint of the agent at path and returns the body of the answer, which
// the caller must close. An error response becomes an error with its text.
func Ask(ctx context.Context, path, method, target string, body io.Reader) (io.ReadCloser, error) {
	resp, err := Send(ctx, path, method, target, body)
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

// Send is Ask for callers that interpret the status of the answer.
func Send(ctx context.Context, path, method, target string, body io.Reader) (*http.Response, error) {
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
