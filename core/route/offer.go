package route

import "net/netip"

// Offer is a prefix by which a node may announce an address of a Service, and on
// what terms.
type Offer struct {
	// By says who offers, as "Announcement edge"; empty where nobody decides.
	By     string
	Prefix netip.Prefix
	// Attributes are the route's. Weight is that of the node, where WeighBy asks
	// for it and it is known.
	Attributes
	// MinimumHealthy is how many healthy servers there must be.
	MinimumHealthy int
	// Local wants one of them on this very node.
	Local   bool
	WeighBy WeighBy
}

// WeighBy is where the weight of a route comes from.
type WeighBy uint8

// The ways to weigh.
const (
	WeighByNothing   WeighBy = iota
	WeighByEndpoints         // the healthy servers on this node
	WeighByNode              // what the node itself is worth
)
