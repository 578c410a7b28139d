// Package cloud makes VIPs reach balancers where nothing speaks BGP: by the API
// of the cloud. A Provider is one such API, whole states go in; Keeper calls it
// when it must be called; Announcer is the door for an agent that does so by
// itself. The SDKs stay in the packages below.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/core/route"
)

// Offer is what one balancer is ready to carry.
type Offer struct {
	Node   string
	Routes []route.Route
}

// Carried gives of some routes those that a cloud is told of, and of these what it
// takes: a route that is for some peers is not for a cloud, and no attribute is.
func Carried(routes []route.Route) (carried []route.Route) {
	for _, r := range routes {
		if r.Peers == "" {
			carried = append(carried, route.Route{Prefix: r.Prefix, NextHop: r.NextHop})
		}
	}
	return carried
}

// Refused tells by prefix why the cloud does not lead it here; somebody has to
// mend that.
type Refused map[netip.Prefix]string

// Refuse notes why; what has been noted before stays.
func (r Refused) Refuse(p netip.Prefix, format string, values ...any) {
	if _, ok := r[p]; !ok {
		r[p] = fmt.Sprintf(format, values...)
	}
}

// maxWords is how many bytes Words gives: they become a part of a Lease, and a cloud
// may say anything.
const maxWords = 4096

// Words gives them in one line, sorted; where they are too many, how many more there are.
func (r Refused) Words() string {
	var words []string
	for p, why := range r {
		words = append(words, fmt.Sprintf("%s: %.200s", p, why))
	}
	slices.Sort(words)
	size := 0
	for i, w := range words {
		if size += len(w) + len("; "); size > maxWords {
			return strings.Join(words[:i], "; ") + fmt.Sprintf("; and %d more", len(words)-i)
		}
	}
	return strings.Join(words, "; ")
}

// Provider is the API of a cloud. Only one may be at work for an owner at a time;
// where two are for a moment, the next Sync heals it.
type Provider interface {
	// Name is "aws", "gcp" or "webhook".
	Name() string
	// Sync reads what is there, and changes what is ours until exactly these
	// offers are carried: first it withdraws. What is not ours it leaves, and
	// refuses. An error means that not all was done, and it is to be called again;
	// where it joins advertise.RouteErrors alone, all other prefixes are done.
	Sync(ctx context.Context, offers []Offer) (Refused, error)
}

// Owner is what tells the resources of one installation from another's and from
// everybody else's.
var Owner = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`)

// CheckOwner says what is wrong with an owner's name.
func CheckOwner(owner string) error {
	if !Owner.MatchString(owner) {
		return fmt.Errorf("the owner %q is not 1 to 20 of a-z, 0-9 and -, a letter first: it becomes a part of names in the cloud", owner)
	}
	return nil
}

// Hop is a balancer to which a prefix may be led.
type Hop struct {
	Node string     `json:"node"`
	Addr netip.Addr `json:"address"`
}

// Hops gives by prefix all that offer it, sorted by node and address.
func Hops(offers []Offer) map[netip.Prefix][]Hop {
	hops := map[netip.Prefix][]Hop{}
	for _, o := range offers {
		for _, r := range o.Routes {
			hops[r.Prefix] = append(hops[r.Prefix], Hop{o.Node, r.NextHop})
		}
	}
	for p, h := range hops {
		slices.SortFunc(h, func(a, b Hop) int { return cmp.Or(cmp.Compare(a.Node, b.Node), a.Addr.Compare(b.Addr)) })
		hops[p] = slices.Compact(h)
	}
	return hops
}

// Prefixes gives those of hops, sorted.
func Prefixes[V any](hops map[netip.Prefix]V) []netip.Prefix {
	var all []netip.Prefix
	for p := range hops {
		all = append(all, p)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// Choose gives the one of some hops that a prefix is led to where the cloud takes
// only one: the highest random weight. Prefixes are so spread over the nodes, and
// when a node goes only its own move. False where there is none.
func Choose(prefix netip.Prefix, hops []Hop) (Hop, bool) {
	if len(hops) == 0 {
		return Hop{}, false
	}
	return slices.MaxFunc(hops, func(a, b Hop) int {
		return cmp.Or(cmp.Compare(weight(prefix, a), weight(prefix, b)), cmp.Compare(a.Node, b.Node))
	}), true
}

func weight(prefix netip.Prefix, h Hop) uint64 {
	f := fnv.New64a()
	// Writing to a hash never fails.
	_, _ = fmt.Fprintf(f, "%s %s", prefix, h.Node)
	// FNV leaves neighbours near each other: mix as splitmix64 does.
	x := f.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Undone collects what of a Sync could not be done.
type Undone struct{ errs []error }

// Try does a thing, notes if that fails, and says whether it is done.
func (u *Undone) Try(do func() error) bool {
	err := do()
	if err != nil {
		u.errs = append(u.errs, err)
	}
	return err == nil
}

// TryFor does a thing that concerns one prefix alone.
func (u *Undone) TryFor(p netip.Prefix, do func() error) bool {
	return u.Try(func() error {
		if err := do(); err != nil {
			return &advertise.RouteError{Prefix: p, Err: err}
		}
		return nil
	})
}

// Err is what was noted.
func (u *Undone) Err() error { return errors.Join(u.errs...) }
