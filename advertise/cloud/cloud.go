// Package cloud routes VIPs to load balancers through the API of the cloud, for networks
// without BGP. A Provider implements one such API and receives complete states; Keeper
// calls it when needed; Announcer is the interface for an agent that acts for itself. The
// SDKs stay in the packages below.
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

// Offer contains the routes of one load balancer.
type Offer struct {
	Node   string
	Routes []route.Route
}

// Carried returns the routes that a cloud can carry, without attributes: routes for
// specific peers are not for a cloud.
func Carried(routes []route.Route) (carried []route.Route) {
	for _, r := range routes {
		if r.Peers == "" {
			carried = append(carried, route.Route{Prefix: r.Prefix, NextHop: r.NextHop})
		}
	}
	return carried
}

// Refused contains, by prefix, why the cloud does not route it here; an operator must fix
// that.
type Refused map[netip.Prefix]string

// Refuse records a reason, unless there already is one.
func (r Refused) Refuse(p netip.Prefix, format string, values ...any) {
	if _, ok := r[p]; !ok {
		r[p] = fmt.Sprintf(format, values...)
	}
}

// maxWords limits the length of Words, in bytes: the text becomes part of a Lease, and a
// cloud may return anything.
const maxWords = 4096

// Words returns the reasons in one line, sorted. If there are too many, it ends with the
// number of omitted ones.
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

// Provider is the API of a cloud. Only one may be active per owner at a time; if two are
// for a moment, the next Sync corrects it.
type Provider interface {
	// Name is "aws", "gcp" or "webhook".
	Name() string
	// Sync reads the current state, and changes our resources until exactly these offers
	// are carried, starting with withdrawals. It does not touch other resources, and
	// rejects prefixes in conflict with them. An error means that something was not done,
	// and Sync must be called again; if it only joins advertise.RouteErrors, all other
	// prefixes are done.
	Sync(ctx context.Context, offers []Offer) (Refused, error)
}

// Owner matches valid owners, which distinguish the resources of one installation from
// all others.
var Owner = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`)

// CheckOwner returns what is wrong with the name of an owner, or nil.
func CheckOwner(owner string) error {
	if !Owner.MatchString(owner) {
		return fmt.Errorf("the owner %q is not 1 to 20 of a-z, 0-9 and -, a letter first: it becomes a part of names in the cloud", owner)
	}
	return nil
}

// Hop is a load balancer to which a prefix can be routed.
type Hop struct {
	Node string     `json:"node"`
	Addr netip.Addr `json:"address"`
}

// Hops returns by prefix all load balancers that offer it, sorted by node and address.
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

// Prefixes returns the prefixes of hops, sorted.
func Prefixes[V any](hops map[netip.Prefix]V) []netip.Prefix {
	var all []netip.Prefix
	for p := range hops {
		all = append(all, p)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// Choose returns the hop to which a prefix is routed if the cloud supports only one, by
// highest random weight: prefixes are spread over the nodes, and if a node is removed,
// only its own move. It returns false without hops.
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
	// FNV maps similar inputs to similar values: mix as in splitmix64.
	x := f.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Undone collects the errors of a Sync.
type Undone struct{ errs []error }

// Try calls do, records an error, and reports success.
func (u *Undone) Try(do func() error) bool {
	err := do()
	if err != nil {
		u.errs = append(u.errs, err)
	}
	return err == nil
}

// TryFor is like Try for something that only concerns one prefix.
func (u *Undone) TryFor(p netip.Prefix, do func() error) bool {
	return u.Try(func() error {
		if err := do(); err != nil {
			return &advertise.RouteError{Prefix: p, Err: err}
		}
		return nil
	})
}

// Err returns the recorded errors.
func (u *Undone) Err() error { return errors.Join(u.errs...) }
