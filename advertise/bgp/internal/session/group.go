package session

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/advertise/bfd"
)

// Group is what is known about a kind of neighbor before any of them connects. A neighbor
// to which we connect is a group of one address.
type Group struct {
	Name      string
	Peer      string // its name in the configuration, if it is a single peer
	Prefixes  []netip.Prefix
	AS        uint32
	Password  string
	Hold      time.Duration
	Keepalive time.Duration // 0: a third of Hold
	TTL       uint8         // of our segments to another AS; 0: 255
	Hops      uint8         // maximum for the neighbor's segments; 0: no limit
	BFD       bool
	Timing    bfd.Timing
	Client    bool   // of this route reflector
	SendMax   uint8  // next hops per prefix that it is sent
	Receive   bool   // accept several next hops per prefix from it
	Silent    bool   // it is sent no routes at all
	MaxPaths  uint32 // that it may send in each family; 0: no limit
	Dialed    bool   // by us
	MaxPeers  int    // neighbors with sessions; 0: no limit
}

// LinkLocal reports whether a neighbor is identified only by its link. It is sent our
// address on that link as next hop.
func (g *Group) LinkLocal() bool { return g.Prefixes[0].Addr().IsLinkLocalUnicast() }

// updateLimit returns how many routes per minute a neighbor may advertise or withdraw if
// its paths are limited.
func (g *Group) updateLimit() int {
	if g.MaxPaths == 0 {
		return 0
	}
	return max(churn*families*int(g.MaxPaths), leastUpdates)
}
