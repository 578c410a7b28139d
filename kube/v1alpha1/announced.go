package v1alpha1

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/addresspool"
	"github.com/fairlead/fairlead/service"
)

// Announced is what the Announcements say to one node. It is never changed.
//
// +kubebuilder:object:generate=false
type Announced struct {
	here []announced
	// elsewhere says of each Announcement that is not for this node why.
	elsewhere []string
	pools     []namedRanges // the oldest first
}

// announced is an Announcement that is for the node.
type announced struct {
	name             string
	pools            []string
	services         labels.Selector // nil: all
	length4, length6 int
}

type namedRanges struct {
	name   string
	ranges []addresspool.Range
}

// AnnouncedBy gives what Announcements say to a node with these labels, where
// these are the pools that they may name; and what is left out. It is nil where
// there is no Announcement at all.
func AnnouncedBy(all []*Announcement, pools []*AddressPool, node map[string]string) (a *Announced, out []Wrong) {
	if len(all) == 0 {
		return nil, nil
	}
	a = &Announced{pools: rangesOf(pools)}
	all = slices.SortedFunc(slices.Values(all), func(a, b *Announcement) int { return cmp.Compare(a.Name, b.Name) })
	for _, one := range all {
		s := one.Spec
		nodes, wrong := selector("spec.nodeSelector", s.NodeSelector)
		services, wrongToo := selector("spec.serviceSelector", s.ServiceSelector)
		made := announced{one.Name, s.Pools, services, cmp.Or(int(s.AggregationLength), 32), cmp.Or(int(s.AggregationLengthV6), 128)}
		if wrong = errors.Join(wrong, wrongToo, made.checkLengths()); wrong != nil {
			out = append(out, Wrong{"Announcement " + one.Name, wrong})
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

func (a announced) checkLengths() error {
	var errs [2]error
	if a.length4 < 1 || a.length4 > 32 {
		errs[0] = fmt.Errorf("spec.aggregationLength: %d is not between 1 and 32", a.length4)
	}
	if a.length6 < 1 || a.length6 > 128 {
		errs[1] = fmt.Errorf("spec.aggregationLengthV6: %d is not between 1 and 128", a.length6)
	}
	return errors.Join(errs[:]...)
}

// rangesOf gives the addresses of pools. Of a pool that is wrong in part, the rest
// counts: what the controller makes of it is no matter here.
func rangesOf(pools []*AddressPool) (all []namedRanges) {
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

// poolOf gives the name of the pool that an address is of, empty for none.
func (a *Announced) poolOf(vip netip.Addr) string {
	for _, p := range a.pools {
		if slices.ContainsFunc(p.ranges, func(r addresspool.Range) bool { return r.Contains(vip) }) {
			return p.name
		}
	}
	return ""
}

// Prefixes gives the prefixes, sorted, by which the node announces an address of
// a Service; where there are none, why.
func (a *Announced) Prefixes(s *service.Service, vip netip.Addr) (found []netip.Prefix, why string) {
	pool := a.poolOf(vip)
	reasons := a.elsewhere[:len(a.elsewhere):len(a.elsewhere)]
	for _, one := range a.here {
		no := one.not(pool, s.Labels)
		if no != "" {
			reasons = append(reasons, one.name+" "+no)
			continue
		}
		length := one.length4
		if vip.Is6() {
			length = one.length6
		}
		if prefix, _ := vip.Prefix(length); !slices.Contains(found, prefix) { // lengths are checked
			found = append(found, prefix)
		}
	}
	if len(found) == 0 {
		return nil, "no Announcement is for it on this node: " + strings.Join(reasons, "; ")
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return found, ""
}

// not says why an Announcement is not for an address of a pool, of a Service with
// these labels; nothing where it is.
func (a announced) not(pool string, ofService map[string]string) string {
	switch {
	case len(a.pools) > 0 && pool == "":
		return "is for addresses of pools " + strings.Join(a.pools, ", ") + ", and this one is of none"
	case len(a.pools) > 0 && !slices.Contains(a.pools, pool):
		return "is for addresses of pools " + strings.Join(a.pools, ", ") + ", and this one is of " + pool
	case !matches(a.services, ofService):
		return "is for Services with labels " + a.services.String()
	}
	return ""
}
