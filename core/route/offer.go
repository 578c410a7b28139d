package route

import "net/netip"

// Offer is a prefix under which a node may advertise an address of a Service, and the
// conditions for it.
type Offer struct {
	// By names the source of the offer, such as "Advertisement edge". Empty for the
	// default.
	By     string
	Prefix netip.Prefix
	// Attributes are those of the route. Weight is the node's, if WeightBy requests it and
	// it is known.
	Attributes
	// MinHealthyBackends is the minimum number of healthy backends.
	MinHealthyBackends int
	// Local requires one of them on this node.
	Local    bool
	WeightBy WeightBy
}

// WeightBy says where the weight of a route comes from.
type WeightBy uint8

// Sources of weights.
const (
	WeightByNone      WeightBy = iota
	WeightByEndpoints          // the number of healthy backends on this node
	WeightByNode               // the weight of the node
)
