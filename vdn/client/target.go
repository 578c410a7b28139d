package client

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// target is one controller, or those behind one address.
type target struct {
	base  string
	where string // for people
	http  *http.Client

	mu    sync.Mutex
	state ControllerState
}

// ControllerState is how a controller was when it was asked last.
type ControllerState struct {
	URL string `json:"url"`
	// Asked says that it was asked at all.
	Asked     bool `json:"asked"`
	Reachable bool `json:"reachable"`
	// Since is when that began.
	Since time.Time `json:"since,omitzero"`
	// Error is why it is not reachable.
	Error string `json:"error,omitempty"`
}

// Times of connections: one that is silent is probed, so that a controller whose
// machine is gone is noticed before who waits for news has waited in vain.
const (
	probeAfter = 5 * time.Second
	probeEvery = 2 * time.Second
	probes     = 3
)

// target makes one of so many. dial is the path of a socket, or an address that the
// base's name stands for; empty for what the base says.
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

// note remembers what came of a request. A no is an answer.
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

// Controllers gives how each controller was when it was asked last, in the order of
// the URLs.
func (c *Client) Controllers() (all []ControllerState) {
	for _, t := range c.targets {
		t.mu.Lock()
		all = append(all, t.state)
		t.mu.Unlock()
	}
	return all
}
