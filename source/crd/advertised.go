package crd

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
)

// Advertised is what the Advertisements select for one node. It is immutable.
type Advertised struct {
	here []advertised
	// elsewhere explains each Advertisement that does not select this node.
	elsewhere []string
	pools     []namedRanges // oldest first
}

// advertised is an Advertisement that selects the node.
type advertised struct {
	name             string
	pools            []string
	kinds            []v1alpha1.AddressKind
	services         labels.Selector // nil: all
	length4, length6 int
	traffic          v1alpha1.TrafficPolicy
	offer            route.Offer // without the fields that depend on the Service
}

type namedRanges struct {
	name   string
	ranges []addresspool.Range
}

// AdvertisedBy returns what Advertisements select for a node with these labels, given the
// pools that they may name, and what is left out. It returns nil if there is no
// Advertisement at all.
func AdvertisedBy(all []*v1alpha1.Advertisement, pools []*v1alpha1.AddressPool, node map[string]string) (a *Advertised, out []Wrong) {
	if len(all) == 0 {
		return nil, nil
	}
	a = &Advertised{pools: rangesOf(pools)}
	all = slices.SortedFunc(slices.Values(all), func(a, b *v1alpha1.Advertisement) int { return cmp.Compare(a.Name, b.Name) })
	for _, one := range all {
		s := one.Spec
		nodes, wrong := selector("spec.nodeSelector", s.NodeSelector)
		services, wrongToo := selector("spec.serviceSelector", s.ServiceSelector)
		made, unparsed := parse(one, node)
		made.services = services
		if wrong = errors.Join(wrong, wrongToo, unparsed); wrong != nil {
			out = append(out, Wrong{"Advertisement " + one.Name, wrong})
			a.elsewhere = append(a.elsewhere, one.Name+" is refused")
			continue
		}
		if matches(nodes, node) {
			a.here = append(a.here, made)
		} else {
			a.elsewhere = append(a.elsewhere, fmt.Sprintf("%s is for nodes with labels %s", one.Name, nodes))
		}
	}
	return a, out
}

// parse reads everything except the selectors, for a node with these labels. The error
// names all invalid fields.
func parse(a *v1alpha1.Advertisement, node map[string]string) (advertised, error) {
	s, f := &a.Spec, fields{}
	made := advertised{
		name: a.Name, pools: s.Pools, kinds: f.kinds(s.Addresses), traffic: cmp.Or(s.TrafficPolicy, v1alpha1.TrafficPolicyCluster),
		length4: int(f.within("aggregationLength", cmp.Or(int64(s.AggregationLength), 32), 1, 32)),
		length6: int(f.within("aggregationLengthV6", cmp.Or(int64(s.AggregationLengthV6), 128), 1, 128)),
		offer: route.Offer{
			By: "Advertisement " + a.Name, MinHealthyBackends: int(f.within("minHealthyBackends", int64(s.MinHealthyBackends), 0, 100000)),
			Attributes: route.Attributes{
				Communities: f.communities(s.Communities), Peers: f.peers(s.Peers),
				LocalPreference: uint32(f.within("localPreference", s.LocalPreference, 0, math.MaxUint32)),
				MED:             uint32(f.within("med", s.MED, 0, math.MaxUint32)),
				ASPathPrepend:   uint32(f.within("asPathPrepend", int64(s.ASPathPrepend), 0, route.MaxASPathPrepend)),
				Mode:            f.mode(s.Mode),
			},
		},
	}
	if !slices.Contains([]v1alpha1.TrafficPolicy{v1alpha1.TrafficPolicyCluster, v1alpha1.TrafficPolicyLocal, v1alpha1.TrafficPolicyFromService}, made.traffic) {
		f.refuse("trafficPolicy", "%q is none of Cluster, Local and FromService", s.TrafficPolicy)
	}
	switch cmp.Or(s.WeightBy, v1alpha1.WeightByNone) {
	case v1alpha1.WeightByNone:
	case v1alpha1.WeightByEndpoints:
		made.offer.WeightBy = route.WeightByEndpoints
	case v1alpha1.WeightByNode:
		made.offer.WeightBy = route.WeightByNode
		if n, err := strconv.ParseUint(node[v1alpha1.LabelWeight], 10, 16); err == nil {
			made.offer.Weight = uint32(n)
		}
	default:
		f.refuse("weightBy", "%q is none of None, Endpoints and Node", s.WeightBy)
	}
	return made, f.err
}

// ValidateAdvertisement returns an error that names all invalid fields.
func ValidateAdvertisement(a *v1alpha1.Advertisement) error {
	_, nodes := selector("spec.nodeSelector", a.Spec.NodeSelector)
	_, services := selector("spec.serviceSelector", a.Spec.ServiceSelector)
	_, err := parse(a, nil)
	return errors.Join(nodes, services, err)
}

func (f *fields) mode(m v1alpha1.Mode) route.Mode {
	switch m {
	case "", v1alpha1.ModeAny:
		return route.ModeAny
	case v1alpha1.ModeBGP, v1alpha1.ModeLayer2, v1alpha1.ModeCloud:
	default:
		f.refuse("mode", "%q is none of Any, BGP, Layer2 and Cloud", m)
	}
	return route.Mode(m)
}

func (f *fields) communities(texts []v1alpha1.CommunityText) route.Communities {
	var all []route.Community
	for i, text := range texts {
		c, err := route.ParseCommunity(string(text))
		if err != nil {
			f.refuse(fmt.Sprintf("communities[%d]", i), "%v", err)
		}
		all = append(all, c)
	}
	return route.CommunitiesOf(all...)
}

func (f *fields) peers(names []string) route.Names {
	for i, name := range names {
		if name == "" || strings.ContainsFunc(name, unicode.IsSpace) {
			f.refuse(fmt.Sprintf("peers[%d]", i), "%q is not the name of a BGPPeer", name)
		}
	}
	return route.NamesOf(names...)
}

// rangesOf returns the address ranges of pools. Of a partly invalid pool, the valid ranges
// count; the controller's verdict does not matter here.
func rangesOf(pools []*v1alpha1.AddressPool) (all []namedRanges) {
	for _, p := range ByAge(pools) {
		one := namedRanges{name: p.Name}
		for _, text := range p.Spec.Addresses {
			if r, err := addresspool.ParseRange(string(text)); err == nil {
				one.ranges = append(one.ranges, r)
			}
		}
		all = append(all, one)
	}
	return all
}

// poolOf returns the name of the pool that contains an address, or "".
func (a *Advertised) poolOf(vip netip.Addr) string {
	for _, p := range a.pools {
		if slices.ContainsFunc(p.ranges, func(r addresspool.Range) bool { return r.Contains(vip) }) {
			return p.name
		}
	}
	return ""
}

// Offers returns the offers with which the node advertises an address of a Service, sorted
// by the names of their Advertisements, or the reason for having no offers.
func (a *Advertised) Offers(s *service.Service, vip netip.Addr) (found []route.Offer, why string) {
	pool, kind := a.poolOf(vip), s.KindOf(vip)
	local := s.LocalPolicy
	if kind == service.ClusterAddress {
		local = s.LocalPolicyCluster
	}
	reasons := a.elsewhere[:len(a.elsewhere):len(a.elsewhere)]
	for _, one := range a.here {
		no := one.not(pool, kind, s.Labels)
		if no != "" {
			reasons = append(reasons, one.name+" "+no)
			continue
		}
		length := one.length4
		if vip.Is6() {
			length = one.length6
		}
		offer := one.offer
		offer.Prefix, _ = vip.Prefix(length) // lengths are validated
		offer.Local = one.traffic == v1alpha1.TrafficPolicyLocal || one.traffic == v1alpha1.TrafficPolicyFromService && local
		found = append(found, offer)
	}
	if len(found) == 0 {
		return nil, "no Advertisement is for it on this node: " + strings.Join(reasons, "; ")
	}
	return found, ""
}

// not returns why an Advertisement does not select an address of a pool and a kind, of a
// Service with these labels; "" if it does.
func (a advertised) not(pool string, kind service.AddressKind, ofService map[string]string) string {
	switch {
	case !slices.Contains(a.kinds, v1alpha1.AddressKind(kind.String())):
		return fmt.Sprintf("is for %s addresses (addresses), and this one is %s", kindList(a.kinds), kind)
	case len(a.pools) > 0 && pool == "":
		return "is for addresses of pools " + strings.Join(a.pools, ", ") + ", and this one is of none"
	case len(a.pools) > 0 && !slices.Contains(a.pools, pool):
		return "is for addresses of pools " + strings.Join(a.pools, ", ") + ", and this one is of " + pool
	case !matches(a.services, ofService):
		return "is for Services with labels " + a.services.String()
	}
	return ""
}
