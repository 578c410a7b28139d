// Package gcp routes VIPs to load balancers through static routes of a Google Cloud
// network: one for each load balancer of a prefix, all with the same priority, over which
// the network spreads flows (ECMP). It is the only package that uses Google's libraries,
// and only for credentials and errors.
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

	"google.golang.org/api/googleapi"

	"github.com/fairlead/fairlead/advertise/cloud"
)

// DefaultPriority is the default priority of routes in Google Cloud.
const DefaultPriority = 1000

// Config configures a Provider.
type Config struct {
	Owner string
	// Project and Network are those of the routes.
	Project, Network string
	// Priority is the priority of the routes: the lowest wins.
	Priority int
	// Node is the only node whose routes are ours; empty: those of all nodes.
	Node string
	// Endpoint is the URL of the API including its version, and HTTP a client that signs
	// its requests; both are determined automatically by default.
	Endpoint string
	HTTP     *http.Client
}

// Provider implements cloud.Provider.
type Provider struct {
	c Config
	// api is created by the first Sync.
	api *api
}

var _ cloud.Provider = (*Provider)(nil)

// New validates a Config and returns a Provider.
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

// Name returns "gcp".
func (p *Provider) Name() string { return "gcp" }

// Sync makes the network's routes match the offers.
func (p *Provider) Sync(ctx context.Context, offers []cloud.Offer) (cloud.Refused, error) {
	if p.api == nil {
		var err error
		if p.api, err = connect(ctx, p.c); err != nil {
			return nil, err
		}
	}
	w := work{Provider: p, refused: cloud.Refused{}, foreign: map[netip.Prefix]string{}, ours: map[string]*networkRoute{}}
	if err := w.list(ctx); err != nil {
		return nil, words("compute.routes.list", err)
	}
	wanted := w.wanted(offers)
	w.finish(ctx, "delete", w.remove(ctx, wanted))
	w.finish(ctx, "create", w.insert(ctx, wanted))
	return w.refused, w.Err()
}

// work is the state of one Sync.
type work struct {
	*Provider
	cloud.Undone
	refused cloud.Refused
	// ours contains our routes by name, foreign the network's other routes by prefix.
	ours    map[string]*networkRoute
	foreign map[netip.Prefix]string
}

// mark returns the start of the description of our routes, which ends with the node's
// name.
func (p *Provider) mark() string { return "Made by Fairlead, owner " + p.c.Owner + ", for balancer " }

// name returns the name of a route, which depends on everything in the route.
func (p *Provider) name(prefix netip.Prefix, h cloud.Hop) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %s", prefix, h.Node, h.Addr, p.c.Priority, path.Base(p.c.Network)))
	return p.namePrefix() + hex.EncodeToString(sum[:8])
}

func (p *Provider) namePrefix() string { return "fairlead-" + p.c.Owner + "-" }

// list reads the existing routes.
func (w *work) list(ctx context.Context) error {
	return w.api.list(ctx, w.sort)
}

func (w *work) sort(r *networkRoute) {
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

// wanted returns the routes of the offers, by name.
func (w *work) wanted(offers []cloud.Offer) map[string]*networkRoute {
	wanted := map[string]*networkRoute{}
	for p, hops := range cloud.Hops(offers) {
		if other, ok := w.foreign[p]; ok {
			w.refused.Refuse(p, "network %s has a route %s of it that Fairlead has not made, and leaves: delete it, or announce another prefix",
				path.Base(w.c.Network), other)
			continue
		}
		for _, h := range hops {
			name := w.name(p, h)
			wanted[name] = &networkRoute{
				Name: name, Description: w.mark() + h.Node, Network: w.network(), DestRange: p.String(),
				NextHopIP: h.Addr.String(), Priority: w.c.Priority,
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

// pending is an operation in progress.
type pending struct {
	prefix           netip.Prefix
	route, operation string
}

// remove starts to delete our routes that nobody offers, and those whose prefix someone
// else has.
func (w *work) remove(ctx context.Context, wanted map[string]*networkRoute) (begun []pending) {
	for _, name := range names(w.ours) {
		if wanted[name] != nil {
			continue
		}
		prefix := prefixOf(w.ours[name])
		w.TryFor(prefix, func() error {
			op, err := w.api.remove(ctx, name)
			if code(err) == http.StatusNotFound {
				return nil
			} else if err != nil {
				return words("compute.routes.delete", err)
			}
			begun = append(begun, pending{prefix, name, op.Name})
			return nil
		})
	}
	return begun
}

// prefixOf returns the prefix of one of our routes.
func prefixOf(r *networkRoute) netip.Prefix {
	p, _ := netip.ParsePrefix(r.DestRange) // written by us, or by the cloud
	return p
}

// insert starts to create missing routes.
func (w *work) insert(ctx context.Context, wanted map[string]*networkRoute) (begun []pending) {
	for _, name := range names(wanted) {
		if w.ours[name] != nil {
			continue
		}
		prefix := prefixOf(wanted[name])
		w.TryFor(prefix, func() error {
			op, err := w.api.insert(ctx, wanted[name])
			if err != nil {
				return words("compute.routes.create", fmt.Errorf("%s by %s: %w", wanted[name].DestRange, wanted[name].NextHopIP, err))
			}
			begun = append(begun, pending{prefix, name, op.Name})
			return nil
		})
	}
	return begun
}

// finish waits for operations to finish.
func (w *work) finish(ctx context.Context, what string, begun []pending) {
	for _, b := range begun {
		w.TryFor(b.prefix, func() error {
			for {
				// It returns when the operation has finished, or after two minutes.
				op, err := w.api.wait(ctx, b.operation)
				if err != nil {
					return words("compute.globalOperations.get", err)
				}
				if op.Status != "DONE" {
					continue
				}
				if len(op.Error.Errors) == 0 {
					return nil
				}
				e := op.Error.Errors[0]
				return fmt.Errorf("gcp: cannot %s route %s: %s: %s", what, b.route, e.Code, e.Message)
			}
		})
	}
}

func names(routes map[string]*networkRoute) []string {
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

// words explains errors of the API, and how to fix them.
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
		return fmt.Errorf("gcp: credentials rejected (Google's default credentials are used, such as the instance's service account): %s", e.Message)
	case e.Code == http.StatusNotFound:
		return fmt.Errorf("gcp: %s; is --gcp-project right, and --gcp-network?", e.Message)
	}
	return fmt.Errorf("gcp: %w", err)
}

// after returns how long a pause the cloud requests.
func after(e *googleapi.Error) time.Duration {
	seconds, err := strconv.Atoi(e.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}
