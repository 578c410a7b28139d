package sim

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// flow is a client's address and port, and its destination.
type flow struct {
	client, to Node
	number     int32 // among the client's flows
	hash       uint32
}

// flow adds a flow, and returns its index.
func (n *Net[T]) flow(client, to Node, number int32) int32 {
	f := flow{client: client, to: to, number: number}
	f.hash = schedule.Hash(f.toward(to))
	n.flows = append(n.flows, f)
	return int32(len(n.flows) - 1)
}

// portsEach is the number of ports per address, from firstPort on. A client with more
// flows uses several addresses.
const firstPort, portsEach = 1024, 1<<16 - 1024

// toward returns the flow as seen by the schedulers, with the address of vip. The first
// flow of a client has port 80.
func (f *flow) toward(vip Node) schedule.Flow {
	client := addressOf(f.client)
	if f.number > 0 {
		a := client.Addr().As4()
		a[0] += byte((f.number - 1) / portsEach)
		client = netip.AddrPortFrom(netip.AddrFrom4(a), uint16(firstPort+(f.number-1)%portsEach))
	}
	return schedule.Flow{Client: client, Key: service.Key{VIP: addressOf(vip).Addr(), Port: 80, Protocol: service.TCP}}
}

// addressOf returns a node's address for the schedulers.
func addressOf(of Node) netip.AddrPort {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|uint32(of))
	return netip.AddrPortFrom(netip.AddrFrom4(a), 80)
}

// flowOf returns a client's flow by the number that a load uses for it.
func (n *Net[T]) flowOf(client Node, number int) int32 {
	k := &n.nodes[client]
	for len(k.flows) <= number {
		k.flows = append(k.flows, n.flow(client, k.target, int32(len(k.flows))))
	}
	return k.flows[number]
}

// spread derives another hash from a flow's hash, with a secret. Routers must not select
// by the same hash as load balancers. Otherwise each load balancer would only get the
// flows of some slots.
func spread(hash, seed uint32) uint32 {
	h := (uint64(hash) | uint64(seed)<<32) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return uint32(h >> 32)
}
