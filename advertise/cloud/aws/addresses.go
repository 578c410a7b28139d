package aws

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/advertise/cloud"
)

// An interface has a tag "fairlead/OWNER/10.0.0.50" for each address that we assign to
// it: written before and deleted after the assignment. An address without a tag was
// assigned by someone else. An Elastic IP with the tag "fairlead/OWNER" is associated
// with the address in the tag's value.

func (w *work) addresses(ctx context.Context) error {
	vips := w.vips()
	filters := append(byAddress(append(w.nextHops(), vips...)), filter{"tag-key", []string{w.tagPrefix() + "*"}})
	all, err := w.interfaces(ctx, w.c.VPC, filters...)
	if err != nil {
		return err
	}
	chosen := map[netip.Addr]*eni{}
	for _, vip := range vips {
		if to := w.choose(prefixOf(vip), all); to != nil {
			chosen[vip] = to
		}
	}
	w.takeBack(ctx, all, chosen)
	for _, vip := range vips {
		if to := chosen[vip]; to != nil {
			w.give(ctx, all, vip, to)
		}
	}
	w.elastic(ctx, all, vips)
	return nil
}

func prefixOf(vip netip.Addr) netip.Prefix { return netip.PrefixFrom(vip, vip.BitLen()) }

// vips returns the addresses to assign to interfaces, sorted; all other offers are
// rejected.
func (w *work) vips() (vips []netip.Addr) {
	for _, p := range cloud.Prefixes(w.hops) {
		switch {
		case p.Addr().Is6():
			w.refused.Refuse(p, "an IPv6 address cannot be moved between network interfaces: route it with --aws-route-table")
		case !p.IsSingleIP():
			w.refused.Refuse(p, "a network interface accepts single addresses only: advertise addresses (an Advertisement with aggregation length 32), or route the prefix with --aws-route-table")
		default:
			vips = append(vips, p.Addr())
		}
	}
	return vips
}

// takeBack removes addresses from interfaces that should not have them: nobody offers
// them, or nobody with an interface.
func (w *work) takeBack(ctx context.Context, all map[string]*eni, chosen map[netip.Addr]*eni) {
	for _, e := range sorted(all) {
		for addr := range e.owned {
			if chosen[addr] != nil {
				continue
			}
			p := prefixOf(addr)
			if primary, has := e.holds[addr]; has && !primary {
				if !w.TryFor(p, func() error { return w.api.UnassignPrivateIpAddresses(ctx, e.id, addr) }) {
					continue
				}
			}
			w.TryFor(p, func() error { return w.untag(ctx, e.id, addr.String()) })
		}
	}
}

// give assigns an address to an interface.
func (w *work) give(ctx context.Context, all map[string]*eni, vip netip.Addr, to *eni) {
	holder, p := having(all, vip), prefixOf(vip)
	if holder != nil && (!holder.owned[vip] || holder.holds[vip]) {
		w.refused.Refuse(p, "network interface %s already has the address, not assigned by Fairlead: unassign it, or use another address", holder.id)
		return
	}
	if !to.owned[vip] && !w.TryFor(p, func() error { return w.tag(ctx, to.id, vip.String(), "") }) {
		return
	}
	if holder != to {
		if !w.TryFor(p, func() error { return w.api.AssignPrivateIpAddresses(ctx, to.id, vip, holder != nil) }) {
			return
		}
		to.owned[vip], to.holds[vip] = true, false
		if holder != nil {
			delete(holder.holds, vip)
		}
	}
	for _, e := range sorted(all) {
		if e != to && e.owned[vip] {
			w.TryFor(p, func() error { return w.untag(ctx, e.id, vip.String()) })
		}
	}
}

// elastic associates Elastic IPs with the addresses in their tags.
func (w *work) elastic(ctx context.Context, all map[string]*eni, vips []netip.Addr) {
	key := strings.TrimSuffix(w.tagPrefix(), "/")
	found, err := w.api.DescribeAddresses(ctx, filter{"tag-key", []string{key}})
	if err != nil {
		for _, vip := range vips {
			w.TryFor(prefixOf(vip), func() error { return err })
		}
		return
	}
	for _, a := range found {
		for _, t := range a.Tags {
			vip, err := netip.ParseAddr(t.Value)
			if t.Key != key || err != nil || !slices.Contains(vips, vip) {
				continue
			}
			to := having(all, vip)
			if to == nil || !to.owned[vip] { // it was rejected, or could not be assigned
				continue
			}
			if a.NetworkInterface == to.id && a.Address == vip.String() {
				continue
			}
			w.TryFor(prefixOf(vip), func() error { return w.api.AssociateAddress(ctx, a.Allocation, to.id, vip) })
		}
	}
}

func sorted(all map[string]*eni) (list []*eni) {
	for _, e := range all {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *eni) int { return strings.Compare(a.id, b.id) })
	return list
}
