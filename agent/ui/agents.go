package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/limit"
)

// Agent is an agent, router or reflector that answers queries.
type Agent struct {
	Name   string
	client http.Client
}

// maxConns bounds the connections to an agent, idle how long they stay open without a viewer.
const (
	maxConns = 4
	idle     = 30 * time.Second
)

// NewAgent returns an Agent to which dial connects.
func NewAgent(name string, dial func(context.Context) (net.Conn, error)) *Agent {
	return &Agent{Name: name, client: http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxConns, IdleConnTimeout: idle, DisableCompression: true,
	}}}
}

// Agents parses addresses: the path of a socket or HOST:PORT, optionally after NAME=. Names
// are unique.
func Agents(addresses []string) ([]*Agent, error) {
	var all []*Agent
	for _, text := range addresses {
		name, address, named := strings.Cut(text, "=")
		if !named {
			address = text
			name = strings.TrimSuffix(filepath.Base(text), ".sock")
		}
		network := "unix"
		if !strings.Contains(address, "/") {
			network = "tcp"
			if _, _, err := net.SplitHostPort(address); err != nil {
				return nil, fmt.Errorf("%q is neither the path of a socket nor HOST:PORT", address)
			}
		}
		if name == "" || slices.ContainsFunc(all, func(a *Agent) bool { return a.Name == name }) {
			return nil, fmt.Errorf("%q: another agent has the name %q: write NAME=%s", text, name, address)
		}
		all = append(all, NewAgent(name, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}))
	}
	return all, nil
}

// ask sends a request and returns the response's body, which the caller must close.
func (a *Agent) ask(ctx context.Context, method, path string, params url.Values, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path+"?"+params.Encode(), body)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, in which no one recognizes the agent
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("does not answer in time")
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	const enough = 4096
	text, _ := io.ReadAll(io.LimitReader(resp.Body, enough))
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("does not know %s: it is of another role or version", path)
	}
	return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
}

// get decodes an answer, a JSON value.
func (a *Agent) get(ctx context.Context, path string, params url.Values, into any) error {
	body, err := a.ask(ctx, http.MethodGet, path, params, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	bounded := limit.NewReader(body, "answer", limit.Answer)
	err = json.NewDecoder(bounded).Decode(into)
	_, _ = io.Copy(io.Discard, bounded) // so that the connection is used again
	return err
}

// lines returns the JSON values of a stream, at most so many, until ctx ends.
func (a *Agent) lines(ctx context.Context, path string, params url.Values, most int) ([]json.RawMessage, error) {
	body, err := a.ask(ctx, http.MethodGet, path, params, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	all := []json.RawMessage{}
	for dec := json.NewDecoder(limit.NewReader(body, "answer", limit.Item)); len(all) < most; {
		var one json.RawMessage
		if err := dec.Decode(&one); err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return all, nil
			}
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}
