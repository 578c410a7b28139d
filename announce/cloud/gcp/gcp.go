// Package gcp leads VIPs to balancers by static routes of a network of Google
// Cloud: one for each balancer of a prefix, of one priority, among which the
// network spreads flows (ECMP). It is the only package that knows the SDK.
package gcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/fairlead/fairlead/announce/cloud"
)

// DefaultPriority is the one that Google Cloud gives to routes.
const DefaultPriority = 1000

// Config says what is to be written.
type Config struct {
	Owner string
	// Project and Network are where the routes are.
	Project, Network string
	// Priority is that of the routes: the lowest wins.
	Priority int
	// Node is the one whose routes alone are ours; empty: all nodes'.
	Node string
	// Options are for the SDK; by default it finds out all it needs.
	Options []option.ClientOption
}

// Provider is a cloud.Provider.
type Provider struct {
	c Config
	// api is made by the first Sync.
	api *api
}

var _ cloud.Provider = (*Provider)(nil)

// New checks a Config.
func New(c Config) (*Provider, error) {
	if c.Project == "" || c.Network == "" {
		return nil, errors.New("gcp: name the project and the network of the routes (--gcp-project, --gcp-network)")
	}
	if c.Priority < 0 || c.Priority > 65535 {
		return nil, fmt.Errorf("gcp: the priority %d is not between 0 and 65535", c.Priority)
	}
	if err := cloud.CheckOwner(c.Owner); err != nil {
		return nil, err
	}
	return &Provider{c: c}, nil
}

// Name is "gcp".
func (p *Provider) Name() string { return "gcp" }

// Sync makes the network's routes those of the offers.
func (p *Provider) Sync(ctx context.Context, offers []cloud.Offer) (cloud.Refused, error) {
	if p.api == nil {
		var err error
		if p.api, err = connect(ctx, p.c); err != nil {
			return nil, err
		}
	}
	w := work{Provider: p, refused: cloud.Refused{}, foreign: map[netip.Prefix]string{}, ours: map[string]*compute.Route{}}
	if err := w.list(ctx); err != nil {
		return nil, words("compute.routes.list", err)
	}
	wanted := w.wanted(offers)
	w.finish(ctx, "delete", w.remove(ctx, wanted))
	w.finish(ctx, "create", w.insert(ctx, wanted))
	return w.refused, w.Err()
}

// api are the requests that are made here. The SDK's type must not be held in any
// value that becomes an interface: the linker would keep all of its requests, in
// case that reflection asks for one.
type api struct {
	list   func(context.Context, func(*compute.RouteList) error) error
	remove func(ctx context.Context, name string) (*compute.Operation, error)
	insert func(context.Context, *compute.Route) (*compute.Operation, error)
	wait   func(ctx context.Context, operation string) (*compute.Operation, error)
}

func connect(ctx context.Context, c Config) (*api, error) {
	s, err := compute.NewService(ctx, append([]option.ClientOption{option.WithScopes(compute.ComputeScope)}, c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("gcp: %w", err)
	}
	return &api{
		list: func(ctx context.Context, each func(*compute.RouteList) error) error {
			return s.Routes.List(c.Project).Pages(ctx, each)
		},
		remove: func(ctx context.Context, name string) (*compute.Operation, error) {
			return s.Routes.Delete(c.Project, name).Context(ctx).Do()
		},
		insert: func(ctx context.Context, r *compute.Route) (*compute.Operation, error) {
			return s.Routes.Insert(c.Project, r).Context(ctx).Do()
		},
		wait: func(ctx context.Context, operation string) (*compute.Operation, error) {
			return s.GlobalOperations.Wait(c.Project, operation).Context(ctx).Do()
		},
	}, nil
}

// work is one Sync.
type work struct {
	*Provider
	cloud.Undone
	refused cloud.Refused
	// ours are by name, foreign by prefix the others of the network.
	ours    map[string]*compute.Route
	foreign map[netip.Prefix]string
}

// mark begins the description of a route that is ours, and its node's name ends
// it.
func (p *Provider) mark() string { return "Made by Fairlead, owner " + p.c.Owner + ", for balancer " }

// name is that of a route; it says the same as the route.
func (p *Provider) name(prefix netip.Prefix, h cloud.Hop) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %s", prefix, h.Node, h.Addr, p.c.Priority, path.Base(p.c.Network)))
	return p.namePrefix() + hex.EncodeToString(sum[:8])
}

func (p *Provider) namePrefix() string { return "fairlead-" + p.c.Owner + "-" }

// list learns what there is.
func (w *work) list(ctx context.Context) error {
	return w.api.list(ctx, func(page *compute.RouteList) error {
		for _, r := range page.Items {
			w.sort(r)
		}
		return nil
	})
}

func (w *work) sort(r *compute.Route) {
	if path.Base(r.Network) != path.Base(w.c.Network) {
		return
	}
	node, marked := strings.CutPrefix(r.Description, w.mark())
	switch {
	case !marked || !strings.HasPrefix(r.Name, w.namePrefix()):
		if p, err := netip.ParsePrefix(r.DestRange); err == nil {
			w.foreign[p] = r.Name
		}
	case w.c.Node == "" || w.c.Node == node:
		w.ours[r.Name] = r
	}
}

// wanted gives the routes of some offers, by name.
func (w *work) wanted(offers []cloud.Offer) map[string]*compute.Route {
	wanted := map[string]*compute.Route{}
	for p, hops := range cloud.Hops(offers) {
		if other, ok := w.foreign[p]; ok {
			w.refused.Refuse(p, "network %s has a route %s of it that Fairlead has not made, and leaves: delete it, or announce another prefix",
				path.Base(w.c.Network), other)
			continue
		}
		for _, h := range hops {
			name := w.name(p, h)
			wanted[name] = &compute.Route{
				Name: name, Description: w.mark() + h.Node, Network: w.network(), DestRange: p.String(),
				NextHopIp: h.Addr.String(), Priority: int64(w.c.Priority), ForceSendFields: []string{"Priority"},
			}
		}
	}
	return wanted
}

func (w *work) network() string {
	if strings.Contains(w.c.Network, "/") {
		return w.c.Network
	}
	return "projects/" + w.c.Project + "/global/networks/" + w.c.Network
}

// pending is an operation of the cloud that is under way.
type pending struct{ route, operation string }

// remove begins to delete what is ours and nobody offers, and what would be ours
// where another has the prefix.
func (w *work) remove(ctx context.Context, wanted map[string]*compute.Route) (begun []pending) {
	for _, name := range names(w.ours) {
		if wanted[name] != nil {
			continue
		}
		w.Try(func() error {
			op, err := w.api.remove(ctx, name)
			if code(err) == http.StatusNotFound {
				return nil
			} else if err != nil {
				return words("compute.routes.delete", err)
			}
			begun = append(begun, pending{name, op.Name})
			return nil
		})
	}
	return begun
}

// insert begins to make what is missing.
func (w *work) insert(ctx context.Context, wanted map[string]*compute.Route) (begun []pending) {
	for _, name := range names(wanted) {
		if w.ours[name] != nil {
			continue
		}
		w.Try(func() error {
			op, err := w.api.insert(ctx, wanted[name])
			if err != nil {
				return words("compute.routes.create", fmt.Errorf("%s by %s: %w", wanted[name].DestRange, wanted[name].NextHopIp, err))
			}
			begun = append(begun, pending{name, op.Name})
			return nil
		})
	}
	return begun
}

// finish waits until the cloud has done what was begun.
func (w *work) finish(ctx context.Context, what string, begun []pending) {
	for _, b := range begun {
		w.Try(func() error {
			for {
				// It answers when the operation has ended, or after two minutes.
				op, err := w.api.wait(ctx, b.operation)
				if err != nil {
					return words("compute.globalOperations.get", err)
				}
				if op.Status != "DONE" {
					continue
				}
				if op.Error == nil || len(op.Error.Errors) == 0 {
					return nil
				}
				e := op.Error.Errors[0]
				return fmt.Errorf("gcp: cannot %s route %s: %s: %s", what, b.route, e.Code, e.Message)
			}
		})
	}
}

func names(routes map[string]*compute.Route) []string {
	all := make([]string, 0, len(routes))
	for name := range routes {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func code(err error) int {
	if e, ok := errors.AsType[*googleapi.Error](err); ok {
		return e.Code
	}
	return 0
}

// words says what errors of the API mean here, with the mend.
func words(permission string, err error) error {
	e, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		return fmt.Errorf("gcp: %w", err)
	}
	reason := ""
	if len(e.Errors) > 0 {
		reason = e.Errors[0].Reason
	}
	switch {
	case e.Code == http.StatusTooManyRequests || strings.Contains(reason, "ateLimitExceeded") || e.Code == http.StatusServiceUnavailable:
		return &cloud.Busy{After: after(e), Err: fmt.Errorf("gcp: too many requests; it is tried again, later: %s", e.Message)}
	case e.Code == http.StatusForbidden:
		return fmt.Errorf("gcp: no right: give the service account a role with %s (docs/clouds.md): %s", permission, e.Message)
	case e.Code == http.StatusUnauthorized:
		return fmt.Errorf("gcp: the credentials are not taken; the SDK's usual ones are used, as of the instance's service account: %s", e.Message)
	case e.Code == http.StatusNotFound:
		return fmt.Errorf("gcp: %s; is --gcp-project right, and --gcp-network?", e.Message)
	}
	return fmt.Errorf("gcp: %w", err)
}

// after is how long the cloud asks to be left alone.
func after(e *googleapi.Error) time.Duration {
	seconds, err := strconv.Atoi(e.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}
