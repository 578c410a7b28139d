package addresspool

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/core/service"
)

// Port is what a Service exposes on its addresses: a port, a range of ports, or everything
// (AnyProtocol with 0 to 65535).
type Port struct {
	Protocol    service.Protocol
	First, Last uint16
}

// String returns "TCP 80", "UDP 10000-19999" or "all ports".
func (p Port) String() string {
	switch {
	case p.Protocol == service.AnyProtocol:
		return "all ports"
	case p.First == p.Last:
		return fmt.Sprintf("%s %d", p.Protocol, p.First)
	}
	return fmt.Sprintf("%s %d-%d", p.Protocol, p.First, p.Last)
}

// overlaps reports whether p and o have a port in common.
func (p Port) overlaps(o Port) bool {
	either := p.Protocol == service.AnyProtocol || o.Protocol == service.AnyProtocol || p.Protocol == o.Protocol
	return either && p.First <= o.Last && o.First <= p.Last
}

func (p Port) single() bool { return p.First == p.Last && p.Protocol != service.AnyProtocol }

// claim is a port of one user of an address.
type claim struct {
	Port
	id service.ID
}

// tenancy records who has an address or is leaving it. All users have the same sharing
// key, which is not empty if there is more than one user.
type tenancy struct {
	key   string
	users int
	// single holds the users of single ports, ranges all other claims.
	single map[Port][]service.ID
	ranges []claim
	// leaving lists the Services that no longer have the address but may still be
	// published with it.
	leaving []service.ID
}

func (t *tenancy) enter(id service.ID, ports []Port) {
	t.users++
	for _, p := range ports {
		if p.single() {
			t.single[p] = append(t.single[p], id)
		} else {
			t.ranges = append(t.ranges, claim{p, id})
		}
	}
}

func (t *tenancy) leave(id service.ID, ports []Port) {
	t.users--
	for _, p := range ports {
		if !p.single() {
			continue
		}
		left := slices.DeleteFunc(t.single[p], func(o service.ID) bool { return o == id })
		if t.single[p] = left; len(left) == 0 {
			delete(t.single, p)
		}
	}
	t.ranges = slices.DeleteFunc(t.ranges, func(c claim) bool { return c.id == id })
}

// clash returns a claim of a Service other than id that overlaps one of the ports: the
// first by requested port, then by existing port and user.
func (t *tenancy) clash(id service.ID, ports []Port) (found claim, ok bool) {
	consider := func(c claim) {
		if c.id == id {
			return
		}
		if !ok || compareClaims(c, found) < 0 {
			found, ok = c, true
		}
	}
	for _, p := range ports {
		if p.single() {
			for _, user := range t.single[p] {
				consider(claim{p, user})
			}
		} else {
			for o, users := range t.single {
				for _, user := range users {
					if p.overlaps(o) {
						consider(claim{o, user})
					}
				}
			}
		}
		for _, c := range t.ranges {
			if p.overlaps(c.Port) {
				consider(c)
			}
		}
		if ok {
			return found, true
		}
	}
	return claim{}, false
}
