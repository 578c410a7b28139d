package route

import "net/netip"

// Offer is a prefix under which a node may advertise an address of a Service, and the
// conditions for it.
type Offer struct {
	// By names the source of the offer, such as "Announcement edge". Empty for the
	// default.
	By     string
	Prefix netip.Prefix
	// Attributes are those of the route. Weight is the node's, if WeighBy requests it and
	// it is known.
	Attributes
	// MinimumHealthy is the minimum number of healthy backends.
	MinimumHealthy int
	// Local requires one of them on this node.
	Local   bool
	WeighBy WeighBy
}

// WeighBy says where the weight of a route comes from.
type WeighBy uint8

// Sources of weights.
const (
	WeighByNothing   WeighBy = iota
	WeighByEndpoints         // the number of healthy backends on this node
	WeighByNode              // the weight of the node
)
