// Package aws routes VIPs to load balancers through the Amazon EC2 API: by routes in the
// route tables of a VPC, or as secondary addresses of network interfaces, with which
// Elastic IPs can be associated. It is the only package that uses the AWS SDK, and only
// its core: credentials, signature, retries.
package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/cloud"
)

// Config configures a Provider.
type Config struct {
	Owner string
	// RouteTables are the IDs of the route tables for VIPs, all of one VPC.
	RouteTables []string
	// VPC is the ID of the VPC whose network interfaces get VIPs as secondary addresses,
	// instead of routes.
	VPC string
}

// Provider implements cloud.Provider.
type Provider struct {
	c Config
	// api is created by the first Sync: endpoint and credentials may not be available
	// before.
	api *api
}

var _ cloud.Provider = (*Provider)(nil)

// New validates a Config and returns a Provider.
func New(c Config) (*Provider, error) {
	if (c.VPC != "") == (len(c.RouteTables) > 0) {
		return nil, errors.New("aws: name the route tables that lead to VIPs (--aws-route-table), or the VPC whose network interfaces get them (--aws-addresses); one of the two")
	}
	if err := cloud.CheckOwner(c.Owner); err != nil {
		return nil, err
	}
	return &Provider{c: c}, nil
}

// Name returns "aws".
func (p *Provider) Name() string { return "aws" }

// Sync makes route tables, or interfaces, match the offers.
func (p *Provider) Sync(ctx context.Context, offers []cloud.Offer) (cloud.Refused, error) {
	if p.api == nil {
		var err error
		if p.api, err = connect(ctx); err != nil {
			return nil, err
		}
	}
	w := work{Provider: p, refused: cloud.Refused{}, hops: cloud.Hops(offers)}
	err := w.routes
	if p.c.VPC != "" {
		err = w.addresses
	}
	return w.refused, words(errors.Join(err(ctx), w.Err()))
}

// work is the state of one Sync.
type work struct {
	*Provider
	cloud.Undone
	refused cloud.Refused
	hops    map[netip.Prefix][]cloud.Hop
}

// eni is a network interface.
type eni struct {
	id    string
	check bool // source/destination check
	// owned are the addresses that we assigned to it, according to its tags.
	owned map[netip.Addr]bool
	// holds contains all of its addresses: true for the primary one.
	holds map[netip.Addr]bool
}

// atOnce is the maximum number of values of a filter.
const atOnce = 200

// interfaces returns the interfaces of a VPC that match any of the filters.
func (w *work) interfaces(ctx context.Context, vpc string, filters ...filter) (map[string]*eni, error) {
	found := map[string]*eni{}
	for _, f := range filters {
		for some := range slices.Chunk(f.values, atOnce) {
			err := pages(func(token string) (string, error) {
				page, next, err := w.api.DescribeNetworkInterfaces(ctx, []filter{{f.name, some}, {"vpc-id", []string{vpc}}}, token)
				for _, i := range page {
					e := w.read(i)
					found[e.id] = e
				}
				return next, err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (w *work) read(i networkInterface) *eni {
	e := &eni{id: i.ID, check: i.Check, owned: map[netip.Addr]bool{}, holds: map[netip.Addr]bool{}}
	for _, a := range i.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			e.holds[addr] = a.Primary
		}
	}
	for _, a := range i.IPv6Addresses {
		if addr, err := netip.ParseAddr(a); err == nil {
			e.holds[addr] = true
		}
	}
	for _, t := range i.Tags {
		if rest, ok := strings.CutPrefix(t.Key, w.tagPrefix()); ok {
			if addr, err := netip.ParseAddr(rest); err == nil {
				e.owned[addr] = true
			}
		}
	}
	return e
}

// having returns the interface that has an address, or nil.
func having(all map[string]*eni, addr netip.Addr) *eni {
	for _, e := range all {
		if _, ok := e.holds[addr]; ok {
			return e
		}
	}
	return nil
}

// byAddress returns filters for the interfaces that have any of the addresses.
func byAddress(addrs []netip.Addr) (filters []filter) {
	v4, v6 := filter{name: "addresses.private-ip-address"}, filter{name: "ipv6-addresses.ipv6-address"}
	for _, a := range addrs {
		if a.Is4() {
			v4.values = append(v4.values, a.String())
		} else {
			v6.values = append(v6.values, a.String())
		}
	}
	for _, f := range []filter{v4, v6} {
		slices.Sort(f.values)
		f.values = slices.Compact(f.values)
		filters = append(filters, f)
	}
	return filters
}

// nextHops returns the addresses of all load balancers that offer anything.
func (w *work) nextHops() (all []netip.Addr) {
	for _, hops := range w.hops {
		for _, h := range hops {
			all = append(all, h.Addr)
		}
	}
	return all
}

// choose returns the interface to which a prefix is routed. If none of the next hops has
// an interface, it returns nil and records a refusal.
func (w *work) choose(p netip.Prefix, all map[string]*eni) *eni {
	var names []string
	var can []cloud.Hop
	for _, h := range w.hops[p] {
		names = append(names, h.Addr.String())
		if having(all, h.Addr) != nil {
			can = append(can, h)
		}
	}
	chosen, ok := cloud.Choose(p, can)
	if !ok {
		w.refused.Refuse(p, "no network interface in the VPC has the address %s: set --next-hop to the node's address in the VPC",
			strings.Join(names, " or "))
		return nil
	}
	return having(all, chosen.Addr)
}

// tagPrefix returns the key prefix of the tags that mark our resources.
func (w *work) tagPrefix() string { return "fairlead/" + w.c.Owner + "/" }

func (w *work) tag(ctx context.Context, on, what, value string) error {
	return w.api.CreateTags(ctx, on, tag{w.tagPrefix() + what, value})
}

func (w *work) untag(ctx context.Context, on, what string) error {
	return w.api.DeleteTags(ctx, on, w.tagPrefix()+what)
}

// words explains errors of the API, and how to fix them.
func words(err error) error {
	if err == nil {
		return nil
	}
	if one, ok := err.(*advertise.RouteError); ok {
		return &advertise.RouteError{Prefix: one.Prefix, Err: words(one.Err)}
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range many.Unwrap() {
			all = append(all, words(e))
		}
		return errors.Join(all...)
	}
	action := "the request"
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		action = "ec2:" + op.OperationName
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return fmt.Errorf("aws: %w", err)
	}
	switch api.ErrorCode() {
	case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException":
		return fmt.Errorf("aws: no right to %s: allow it in the IAM policy (docs/clouds.md): %s", action, api.ErrorMessage())
	case "AuthFailure", "InvalidClientTokenId", "ExpiredToken", "RequestExpired", "SignatureDoesNotMatch":
		return fmt.Errorf("aws: credentials rejected with %s (the SDK's default credentials are used, such as the instance's role): %s", api.ErrorCode(), api.ErrorMessage())
	case "InvalidRouteTableID.NotFound":
		return fmt.Errorf("aws: %s; name route tables of this region by --aws-route-table", api.ErrorMessage())
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "Client.RequestLimitExceeded":
		return fmt.Errorf("aws: %s is throttled: too many requests of this account; it is tried again, later: %s", action, api.ErrorMessage())
	case "RouteLimitExceeded", "PrivateIpAddressLimitExceeded", "TagLimitExceeded":
		return fmt.Errorf("aws: %s: %s: announce wider prefixes, or have the quota raised: %s", action, api.ErrorCode(), api.ErrorMessage())
	}
	return fmt.Errorf("aws: %s: %s: %s", action, api.ErrorCode(), api.ErrorMessage())
}
