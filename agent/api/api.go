// Package api is what an agent and the commands that query it agree on, in addition to the
// status: paths on the socket, their parameters and values. Serving is up to cmd/fairlead,
// asking to its clients. Tests need neither.
package api

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/fairlead/fairlead/dataplane"
)

// Paths that an agent serves in addition to its status.
const (
	TracePath = "/v1/trace"
	// DropsPath returns counts of dropped packets; EventsPath streams samples.
	DropsPath   = "/v1/drops"
	EventsPath  = DropsPath + "/events"
	FlowsPath   = "/v1/flows"
	CapturePath = "/v1/capture"
	// DrainPath starts a drain, or ends it with ?undo=true.
	DrainPath = "/v1/drain"
	// DiffPath compares manifests (DiffRequest) with what is programmed.
	DiffPath = "/v1/diff"
)

// Flow is a tracked flow and the program that tracks it.
type Flow struct {
	dataplane.Flow
	// At is "balancer" or "dsr".
	At string `json:"at"`
}

// FlowQuery parses the parameters of a request.
func FlowQuery(values url.Values) (q dataplane.FlowQuery, err error) {
	for key, to := range map[string]*netip.AddrPort{"vip": &q.VIP, "client": &q.Client, "backend": &q.Server} {
		if text := values.Get(key); text != "" {
			if *to, err = ParseEnd(text); err != nil {
				return q, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 0 {
			return q, fmt.Errorf("limit: %q is not a number of at least 0", text)
		}
	}
	return q, nil
}

// ParseEnd parses an address with an optional port.
func ParseEnd(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, 0), nil
	}
	end, err := netip.ParseAddrPort(text)
	if err != nil {
		return end, fmt.Errorf("%q is not an address and port, as in 192.0.2.7:1234 or [2001:db8::7]:1234", text)
	}
	return end, nil
}
