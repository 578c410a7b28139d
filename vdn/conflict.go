package vdn

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Fits returns an error if a network conflicts with the other networks of its domain, with
// the accepted networks of peers, or with the rates of the nodes' uplinks. before is the
// current version of the network, nil if it is new.
func (n Network) Fits(before *Network, s State) error {
	for i, sub := range n.Subnets {
		if by := s.overlap(sub.CIDR, n.Name); by != "" {
			return conflict(n.Object(), index("subnets", i)+".cidr", "%s overlaps %s: use another", sub.CIDR, by)
		}
	}
	for _, domain := range n.SharedWith {
		if domain == s.Domain {
			return conflict(n.Object(), "sharedWith", "%s is this domain itself: remove it", domain)
		}
	}
	if before != nil && n.GuaranteedRate <= before.GuaranteedRate {
		return nil // an existing overcommitment does not get worse
	}
	networks := slices.DeleteFunc(slices.Clone(s.Networks), func(o Network) bool { return o.Name == n.Name })
	if o := Overbooked(append(networks, n), s.Nodes); len(o) > 0 {
		return conflict(n.Object(), "guaranteedRate", "%s: lower guaranteedRate", o[0])
	}
	return nil
}

// overlap names the network, except one, that overlaps a prefix.
func (s State) overlap(p netip.Prefix, but string) string {
	for _, o := range s.Networks {
		if with, ok := overlapping(o.Prefixes(), p); ok && o.Name != but {
			return fmt.Sprintf("%s of %s", with, o.Object())
		}
	}
	for _, peer := range s.Peers {
		for _, o := range peer.Networks {
			if with, ok := overlapping(o.Prefixes, p); ok && o.Refused == "" {
				return fmt.Sprintf("%s of %s's network %s", with, peer.Domain, o.Name)
			}
		}
	}
	return ""
}

func overlapping(all []netip.Prefix, p netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(all, p.Overlaps)
	if i < 0 {
		return netip.Prefix{}, false
	}
	return all[i], true
}

// Prefixes returns the prefixes of a network's subnets.
func (n Network) Prefixes() []netip.Prefix {
	all := make([]netip.Prefix, len(n.Subnets))
	for i, s := range n.Subnets {
		all[i] = s.CIDR
	}
	return all
}

// Overbooked describes the uplinks whose rate is less than the sum of the guarantees.
func Overbooked(networks []Network, nodes []Node) (words []string) {
	var sum Rate
	var names []string
	for _, n := range networks {
		if n.GuaranteedRate > 0 {
			sum += n.GuaranteedRate
			names = append(names, fmt.Sprintf("%s %s", n.Name, n.GuaranteedRate))
		}
	}
	for _, node := range nodes {
		for _, u := range node.Uplinks {
			if sum > u.Rate {
				words = append(words, fmt.Sprintf("%s are guaranteed in total (%s), but uplink %s of node %s has a rate of %s",
					sum, strings.Join(names, ", "), u.Device, node.Name, u.Rate))
			}
		}
	}
	return words
}

// Accept decides which networks of peers are accepted, and records why others are not
// (SharedNetwork.Refused). Networks that were accepted before take precedence, then the
// order of the domain names decides, so that working networks continue to work.
func Accept(own []Network, before, now []PeerView) []PeerView {
	counted := map[string]bool{}
	for _, p := range before {
		for _, n := range p.Networks {
			counted[FederatedName(p.Domain, n.Name)] = n.Refused == ""
		}
	}
	out := slices.SortedFunc(slices.Values(now), func(a, b PeerView) int { return strings.Compare(a.Domain, b.Domain) })
	var first, later []offered
	for i, p := range out {
		out[i].Networks = slices.Clone(p.Networks)
		for k := range p.Networks {
			o := offered{&out[i].Peer, &out[i].Networks[k]}
			o.Prefixes = append([]netip.Prefix{}, o.Prefixes...)
			if counted[o.name()] {
				first = append(first, o)
			} else {
				later = append(later, o)
			}
		}
	}
	j := judge{own: State{Networks: own}, names: map[string]bool{}}
	for _, o := range append(first, later...) {
		o.Refused = j.refusal(o)
		if o.Refused == "" {
			j.accepted = append(j.accepted, o)
			j.names[o.name()] = true
		}
	}
	return out
}

// maxSubnets limits the subnets of a network: one per address family.
const maxSubnets = 2

// FederatedName returns the local name of another domain's network.
func FederatedName(domain, name string) string { return domain + "/" + name }

// offered is a network of a peer.
type offered struct {
	*Peer
	*SharedNetwork
}

func (o offered) name() string { return FederatedName(o.Domain, o.Name) }

// judge holds what is accepted so far.
type judge struct {
	own      State
	accepted []offered
	names    map[string]bool
}

// refusal returns why a network is not accepted, or "".
func (j *judge) refusal(o offered) string {
	c := &checker{object: "network " + o.name()}
	if !label.MatchString(o.Name) {
		c.add("name", "%q is not a DNS label: %s", o.Name, labelWords)
	}
	if j.names[o.name()] {
		c.add("name", "is offered twice: %s must offer it once", o.Domain)
	}
	if len(o.Prefixes) == 0 {
		c.add("prefixes", "is empty: %s must add a subnet", o.Domain)
	}
	if len(o.Prefixes) > maxSubnets { // before comparing each with all others
		c.add("prefixes", "has %d entries: %s must split it into networks of at most one IPv4 and one IPv6 subnet", len(o.Prefixes), o.Domain)
		return c.err().Error()
	}
	c.each("peerNetworks", o.PeerNetworks, label.MatchString, "is not a network of this domain: "+o.Domain+" must use its name without a domain")
	for i, p := range o.Prefixes {
		at := index("prefixes", i)
		if !c.prefix(at, p) {
			continue
		}
		if p.Bits() == 0 {
			c.add(at, "%s contains all addresses: %s must share a longer prefix", p, o.Domain)
		} else if by := j.overlap(p); by != "" {
			c.add(at, "%s overlaps %s: one of the two domains must use another", p, by)
		} else if o.nextHop(p.Addr().Is4()) == (netip.Addr{}) {
			c.add(at, "%s has no next hop: add an address of its family to nextHops of peer %s", p, o.Domain)
		}
	}
	if err := c.err(); err != nil {
		return err.Error()
	}
	return ""
}

func (j *judge) overlap(p netip.Prefix) string {
	if by := j.own.overlap(p, ""); by != "" {
		return by
	}
	for _, a := range j.accepted {
		if with, ok := overlapping(a.Prefixes, p); ok {
			return fmt.Sprintf("%s of %s's network %s", with, a.Domain, a.Name)
		}
	}
	return ""
}

// nextHop returns the gateway of a family, or an invalid address without one.
func (p Peer) nextHop(is4 bool) netip.Addr {
	for _, a := range p.NextHops {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}
