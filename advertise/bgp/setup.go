package bgp

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/advertise/bgp/internal/engine"
	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
)

// dials returns the peers to dial, each of which is a group of one address; as and local
// are ours.
func dials(peers []PeerConfig, as uint32, local netip.Addr) (all []engine.Dial, err error) {
	seen, names := map[netip.Addr]int{}, map[string]int{}
	for i, p := range peers {
		if err := validatePeer(fmt.Sprintf("peers[%d]", i), p, local); err != nil {
			return nil, err
		}
		bare := p.Address.WithZone("")
		if j, twice := seen[bare]; twice {
			return nil, fmt.Errorf("peers[%d].address: %s is peers[%d] already", i, bare, j)
		}
		seen[bare] = i
		name := cmp.Or(p.Name, p.Address.String())
		if j, twice := names[name]; twice {
			return nil, fmt.Errorf("peers[%d].name: %s is peers[%d] already", i, name, j)
		}
		names[name] = i
		from := local
		if p.SourceAddress.IsValid() {
			from = p.SourceAddress
		}
		all = append(all, engine.Dial{
			To: netip.AddrPortFrom(p.Address, cmp.Or(p.Port, DefaultPort)), From: from, Device: p.SourceInterface, Retry: cmp.Or(p.ConnectRetry, DefaultConnectRetry),
			Group: &session.Group{
				Name: "peer " + p.Address.String(), Peer: name, AS: cmp.Or(p.AS, as), Password: p.Password, Hold: cmp.Or(p.HoldTime, DefaultHoldTime), Keepalive: p.Keepalive,
				Prefixes: []netip.Prefix{netip.PrefixFrom(bare, bare.BitLen())}, BFD: p.BFD, Timing: p.Timing, TTL: p.EBGPMultihop, Hops: p.TTLSecurity, Dialed: true,
			},
		})
	}
	return all, nil
}

// groups returns the neighbors that connect to us; as is ours.
func groups(configured []NeighborGroup, as uint32) (all []*session.Group, err error) {
	owner := map[netip.Prefix]string{}
	for i, n := range configured {
		if err := validateGroup(i, n); err != nil {
			return nil, err
		}
		g := &session.Group{Name: cmp.Or(n.Name, n.Prefixes[0].String()), Prefixes: n.Prefixes, AS: cmp.Or(n.AS, as), Password: n.Password, Hold: cmp.Or(n.HoldTime, DefaultHoldTime),
			BFD: n.BFD, Timing: n.Timing, SendMax: n.SendMax, MaxPaths: n.MaxPrefixes, MaxPeers: n.MaxPeers}
		for _, p := range n.Prefixes {
			if o, taken := owner[p]; taken {
				return nil, fmt.Errorf("groups[%s].prefixes: %s already belongs to group %s", g.Name, p, o)
			}
			owner[p] = g.Name
		}
		all = append(all, g)
	}
	return all, nil
}

func listenAddrs(addrs []netip.Addr, port uint16) []netip.AddrPort {
	if port == 0 {
		port = DefaultPort
	}
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	}
	out := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		out[i] = netip.AddrPortFrom(a, port)
	}
	return out
}
