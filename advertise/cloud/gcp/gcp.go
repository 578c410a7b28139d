// Package gcp leads VIPs to balancers by static routes of a network of Google
// Cloud: one for each balancer of a prefix, of one priority, among which the
// network spreads flows (ECMP). It is the only package that knows
// Google's libraries, of which it uses credentials and errors.
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
	// Endpoint is the URL of the API up to its version, and HTTP signs requests of it;
	// by default both are found out.
	Endpoint string
	HTTP     *http.Client
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
	w := work{Provider: p, refused: cloud.Refused{}, foreign: map[netip.Prefix]string{}, ours: map[string]*networkRoute{}}
	if err := w.list(ctx); err != nil {
		return nil, words("compute.routes.list", err)
	}
	wanted := w.wanted(offers)
	w.finish(ctx, "delete", w.remove(ctx, wanted))
	w.finish(ctx, "create", w.insert(ctx, wanted))
	return w.refused, w.Err()
}

// work is one Sync.
type work struct {
	*Provider
	cloud.Undone
	refused cloud.Refused
	// ours are by name, foreign by prefix the others of the network.
	ours    map[string]*networkRoute
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

// wanted gives the routes of some offers, by name.
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

// pending is an operation of the cloud that is under way.
type pending struct {
	prefix           netip.Prefix
	route, operation string
}

// remove begins to delete what is ours and nobody offers, and what would be ours
// where another has the prefix.
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

// prefixOf is the prefix of a route of ours.
func prefixOf(r *networkRoute) netip.Prefix {
	p, _ := netip.ParsePrefix(r.DestRange) // which we have written, or the cloud
	return p
}

// insert begins to make what is missing.
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

// finish waits until the cloud has done what was begun.
func (w *work) finish(ctx context.Context, what string, begun []pending) {
	for _, b := range begun {
		w.TryFor(b.prefix, func() error {
			for {
				// It answers when the operation has ended, or after two minutes.
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
