package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/vdn"
)

// Node reports are not in the store, so every controller must receive them, including
// controllers that share a name, as behind a headless Service.

// lookEvery is the interval between name lookups.
const lookEvery = 10 * time.Second

// reports holds the receivers of node reports.
type reports struct {
	mu     sync.Mutex
	looked time.Time
	to     []*target
	// known holds targets by address, for names that resolve to several.
	known map[string]*target
	// busy holds the targets that have not yet answered the last report.
	busy map[*target]bool
}

// Report sends a node's state to all controllers. It returns when the first one has
// accepted it, or with an error if none could be reached. The other requests continue.
func (c *Client) Report(ctx context.Context, n vdn.NodeReport) error {
	r, err := c.request(http.MethodPut, path("nodes", n.Name), n)
	if err != nil {
		return err
	}
	to := c.receivers(ctx)
	results := make(chan error, len(to))
	for _, t := range to {
		go func() {
			// Do not wait for slow controllers, nor send them a second report meanwhile.
			_, err := c.askOne(context.WithoutCancel(ctx), t, r, c.timeout, nil)
			c.free(t)
			results <- err
		}()
	}
	var failed []error
	for range to {
		select {
		case err := <-results:
			if err == nil {
				return nil
			}
			failed = append(failed, err)
		case <-ctx.Done():
			return errors.Join(append(failed, ctx.Err())...)
		}
	}
	if len(failed) == 0 {
		return nil // all targets are still busy with the last report
	}
	return unreachable(failed)
}

// receivers returns the targets to send to now and marks them busy.
func (c *Client) receivers(ctx context.Context) (to []*target) {
	c.reports.mu.Lock()
	defer c.reports.mu.Unlock()
	if c.reports.busy == nil {
		c.reports.busy, c.reports.known = map[*target]bool{}, map[string]*target{}
	}
	if now := time.Now(); now.Sub(c.reports.looked) > lookEvery {
		c.reports.looked, c.reports.to = now, c.look(ctx)
	}
	for _, t := range c.reports.to {
		if !c.reports.busy[t] {
			c.reports.busy[t] = true
			to = append(to, t)
		}
	}
	return to
}

func (c *Client) free(t *target) {
	c.reports.mu.Lock()
	defer c.reports.mu.Unlock()
	delete(c.reports.busy, t)
}

// look returns a target for each address of each controller's name.
func (c *Client) look(ctx context.Context) (all []*target) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	known := map[string]*target{}
	for _, t := range c.targets {
		u, err := url.Parse(t.base)
		if err != nil || net.ParseIP(u.Hostname()) != nil || u.Port() == "" {
			all = append(all, t)
			continue
		}
		addresses, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
		if err != nil || len(addresses) < 2 || slices.ContainsFunc(addresses, func(a string) bool { return net.ParseIP(a).IsLoopback() }) {
			all = append(all, t)
			continue
		}
		for _, a := range addresses {
			at := net.JoinHostPort(a, u.Port())
			key := t.where + " " + at
			if known[key] = c.reports.known[key]; known[key] == nil {
				known[key] = c.target(t.base, t.where+" ("+at+")", at, 1)
			}
			all = append(all, known[key])
		}
	}
	c.reports.known = known
	return all
}
