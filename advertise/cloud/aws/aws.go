// Package aws leads VIPs to balancers by the API of Amazon EC2: by routes in
// tables of a VPC, or as secondary addresses of network interfaces, to which
// Elastic IPs follow. It is the only package
// that knows the SDK, of which it uses the core: credentials, signature, retries.
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

// Config says what is to be written.
type Config struct {
	Owner string
	// RouteTables are the IDs of those that lead VIPs to balancers, all of one VPC.
	RouteTables []string
	// VPC is the ID of the one whose network interfaces get VIPs as secondary
	// addresses, in place of routes.
	VPC string
}

// Provider is a cloud.Provider.
type Provider struct {
	c Config
	// api is made by the first Sync: where it is in the network, and who we are
	// there, may not be known before.
	api *api
}

var _ cloud.Provider = (*Provider)(nil)

// New checks a Config.
func New(c Config) (*Provider, error) {
	if (c.VPC != "") == (len(c.RouteTables) > 0) {
		return nil, errors.New("aws: name the route tables that lead to VIPs (--aws-route-table), or the VPC whose network interfaces get them (--aws-addresses); one of the two")
	}
	if err := cloud.CheckOwner(c.Owner); err != nil {
		return nil, err
	}
	return &Provider{c: c}, nil
}

// Name is "aws".
func (p *Provider) Name() string { return "aws" }

// Sync makes route tables, or interfaces, hold the offers.
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

// work is one Sync.
type work struct {
	*Provider
	cloud.Undone
	refused cloud.Refused
	hops    map[netip.Prefix][]cloud.Hop
}

// eni is a network interface.
type eni struct {
	id    string
	check bool // of source and destination
	// owned are the addresses that we have given it, by its tags.
	owned map[netip.Addr]bool
	// holds are all of its addresses: true for the primary one.
	holds map[netip.Addr]bool
}

// atOnce is how many values a filter takes.
const atOnce = 200

// interfaces gives those of a VPC that match one of some filters.
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

// having gives the one of some interfaces that has an address, or nil.
func having(all map[string]*eni, addr netip.Addr) *eni {
	for _, e := range all {
		if _, ok := e.holds[addr]; ok {
			return e
		}
	}
	return nil
}

// byAddress are the filters of the interfaces that have one of some addresses.
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

// nextHops are the addresses of all balancers that offer anything.
func (w *work) nextHops() (all []netip.Addr) {
	for _, hops := range w.hops {
		for _, h := range hops {
			all = append(all, h.Addr)
		}
	}
	return all
}

// choose gives the interface that a prefix is led to; nil, and a refusal, where
// none of the next hops has one.
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
		w.refused.Refuse(p, "no network interface there has the address %s: announce with --next-hop the address that the node has in the VPC",
			strings.Join(names, " or "))
		return nil
	}
	return having(all, chosen.Addr)
}

// tagPrefix begins the keys of the tags that say what is ours.
func (w *work) tagPrefix() string { return "fairlead/" + w.c.Owner + "/" }

func (w *work) tag(ctx context.Context, on, what, value string) error {
	return w.api.CreateTags(ctx, on, tag{w.tagPrefix() + what, value})
}

func (w *work) untag(ctx context.Context, on, what string) error {
	return w.api.DeleteTags(ctx, on, w.tagPrefix()+what)
}

// words says what errors of the API mean here, with the mend.
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
		return fmt.Errorf("aws: the credentials are not taken (%s); the SDK's usual ones are used, as of the instance's role: %s", api.ErrorCode(), api.ErrorMessage())
	case "InvalidRouteTableID.NotFound":
		return fmt.Errorf("aws: %s; name route tables of this region by --aws-route-table", api.ErrorMessage())
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "Client.RequestLimitExceeded":
		return fmt.Errorf("aws: %s is throttled: too many requests of this account; it is tried again, later: %s", action, api.ErrorMessage())
	case "RouteLimitExceeded", "PrivateIpAddressLimitExceeded", "TagLimitExceeded":
		return fmt.Errorf("aws: %s: %s: announce wider prefixes, or have the quota raised: %s", action, api.ErrorCode(), api.ErrorMessage())
	}
	return fmt.Errorf("aws: %s: %s: %s", action, api.ErrorCode(), api.ErrorMessage())
}
