package sim

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/core/schedule"
	"github.com/fairlead/fairlead/core/service"
)

// flow is a client's address and port, and what it addresses.
type flow struct {
	client, to Node
	number     int32 // of the client's flows
	hash       uint32
}

// flow adds one, and gives its number among all.
func (n *Net[T]) flow(client, to Node, number int32) int32 {
	f := flow{client: client, to: to, number: number}
	f.hash = schedule.Hash(f.toward(to))
	n.flows = append(n.flows, f)
	return int32(len(n.flows) - 1)
}

// portsEach is how many ports an address has for its flows, from firstPort on;
// a client with more flows has more addresses.
const firstPort, portsEach = 1024, 1<<16 - 1024

// toward gives the flow's side and an address, for the schedulers. A client with
// one flow has port 80.
func (f *flow) toward(vip Node) schedule.Flow {
	client := addressOf(f.client)
	if f.number > 0 {
		a := client.Addr().As4()
		a[0] += byte((f.number - 1) / portsEach)
		client = netip.AddrPortFrom(netip.AddrFrom4(a), uint16(firstPort+(f.number-1)%portsEach))
	}
	return schedule.Flow{Client: client, Key: service.Key{VIP: addressOf(vip).Addr(), Port: 80, Protocol: service.TCP}}
}

// addressOf gives a node an address, for the schedulers.
func addressOf(of Node) netip.AddrPort {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|uint32(of))
	return netip.AddrPortFrom(netip.AddrFrom4(a), 80)
}

// flowOf gives a client's flow by the number that a load gives it.
func (n *Net[T]) flowOf(client Node, number int) int32 {
	k := &n.nodes[client]
	for len(k.flows) <= number {
		k.flows = append(k.flows, n.flow(client, k.target, int32(len(k.flows))))
	}
	return k.flows[number]
}

// spread makes another hash of a flow's, with a secret: routers are not to choose
// by what balancers choose by, or each balancer would have flows of some slots
// alone.
func spread(hash, seed uint32) uint32 {
	h := (uint64(hash) | uint64(seed)<<32) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return uint32(h >> 32)
}
