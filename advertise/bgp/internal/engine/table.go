package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise"
	"github.com/fairlead/fairlead/advertise/bgp/internal/paths"
)

// Routes lists the table, or only some prefixes of it: the best paths of each, every next
// hop once even if two reflectors pass it on, sorted by prefix.
func (e *Engine) Routes(only ...netip.Prefix) ([]advertise.RouteSet, error) {
	var all []advertise.RouteSet
	for _, family := range []pkt.Family{pkt.RF_IPv4_UC, pkt.RF_IPv6_UC} {
		var lookups []*apiutil.LookupPrefix
		for _, p := range only {
			if p.Addr().Is4() == (family == pkt.RF_IPv4_UC) {
				lookups = append(lookups, &apiutil.LookupPrefix{Prefix: p.String()})
			}
		}
		if len(only) > 0 && len(lookups) == 0 {
			continue
		}
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family, Prefixes: lookups}
		err := e.server.ListPath(req, func(nlri pkt.NLRI, found []*apiutil.Path) {
			if set := paths.RouteSet(paths.Prefix(nlri), found); len(set.NextHops) > 0 {
				all = append(all, set)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("BGP table of %s: %w", family, err)
		}
	}
	slices.SortFunc(all, func(a, b advertise.RouteSet) int { return a.Prefix.Compare(b.Prefix) })
	return all, nil
}
