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

// A node's reports are in no store: every controller gets them, also those that share a
// name, as behind a headless Service.

// lookEvery is how often names are looked up.
const lookEvery = 10 * time.Second

// reports are whom reports go to.
type reports struct {
	mu     sync.Mutex
	looked time.Time
	to     []*target
	// known are targets by address, of names with several.
	known map[string]*target
	// busy are those that have not answered the last one yet.
	busy map[*target]bool
}

// Report sends a node's state to all controllers. It returns when one has it, or with an
// error when none could be reached; the others get it meanwhile.
func (c *Client) Report(ctx context.Context, n vdn.NodeReport) error {
	r, err := c.request(http.MethodPut, path("nodes", n.Name), n)
	if err != nil {
		return err
	}
	to := c.receivers(ctx)
	told := make(chan error, len(to))
	for _, t := range to {
		go func() {
			// Who is slow is not waited for, nor asked twice at once.
			_, err := c.askOne(context.WithoutCancel(ctx), t, r, c.timeout, nil)
			c.free(t)
			told <- err
		}()
	}
	var failed []error
	for range to {
		select {
		case err := <-told:
			if err == nil {
				return nil
			}
			failed = append(failed, err)
		case <-ctx.Done():
			return errors.Join(append(failed, ctx.Err())...)
		}
	}
	if len(failed) == 0 {
		return nil // all have the last one yet to answer
	}
	return unreachable(failed)
}

// receivers are those that are to be told now; each is busy until it is freed.
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

// look gives a target for each address of each controller's name.
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
