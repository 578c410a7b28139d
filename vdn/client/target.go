package client

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// target is one controller, or the controllers behind one address.
type target struct {
	base  string
	where string // for messages
	http  *http.Client

	mu    sync.Mutex
	state ControllerState
}

// ControllerState is the state of a controller at the last request.
type ControllerState struct {
	URL string `json:"url"`
	// Asked is true after the first request.
	Asked     bool `json:"asked"`
	Reachable bool `json:"reachable"`
	// Since is when the current state began.
	Since time.Time `json:"since,omitzero"`
	// Error is why the controller is unreachable.
	Error string `json:"error,omitempty"`
}

// Keepalive of connections: an idle connection is probed, so that the loss of the
// controller's machine is detected before a wait for changes times out.
const (
	probeAfter = 5 * time.Second
	probeEvery = 2 * time.Second
	probes     = 3
)

// target creates one of several targets. dial is the path of a socket, or an address to use
// instead of the base URL's host; empty to use the base URL.
func (c *Client) target(base, where, dial string, of int) *target {
	dialer := &net.Dialer{
		Timeout:         c.share(of),
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: probes},
	}
	transport := &http.Transport{
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: true, DialContext: dialer.DialContext,
		HTTP2: &http.HTTP2Config{SendPingTimeout: probeAfter, PingTimeout: probeEvery * probes},
	}
	switch {
	case dial != "" && dial[0] == '/':
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", dial) }
	case dial != "":
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, dial)
		}
	}
	if c.tls != nil {
		transport.TLSClientConfig = c.tls.Clone()
	}
	return &target{base: base, where: where, http: &http.Client{Transport: transport}, state: ControllerState{URL: where}}
}

// note records the outcome of a request. An error response counts as reachable.
func (t *target) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reachable := !IsUnavailable(err)
	if !t.state.Asked || t.state.Reachable != reachable {
		t.state.Since = time.Now()
	}
	t.state.Asked, t.state.Reachable, t.state.Error = true, reachable, ""
	if !reachable {
		t.state.Error = err.Error()
	}
}

// Controllers returns the state of each controller at the last request, in the order of the
// URLs.
func (c *Client) Controllers() (all []ControllerState) {
	for _, t := range c.targets {
		t.mu.Lock()
		all = append(all, t.state)
		t.mu.Unlock()
	}
	return all
}
