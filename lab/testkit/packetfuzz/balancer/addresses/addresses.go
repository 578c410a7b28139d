// Package addresses has the addresses of the balancer's worlds and of its network.
//
// What does not belong here: random configurations (balancer) and packets (generate).
package addresses

import (
	"net/netip"

	"github.com/fairlead/fairlead/lab/testkit/packetfuzz/wire"
)

// The network of all worlds:
//
//	eth0  172.16.0.2/24, fd00::2/64, MTU 1500; the default gateway is 172.16.0.1,
//	      fd00::1. On it a macvlan with its own MAC address.
//	eth1  172.17.0.2/24, fd01::2/64, MTU 1400; 172.17.0.3, fd01::3 is the gateway
//	      of 10.9.0.0/16, fd09::/64
//	both  neighbors .32 to .39 on their wires; .9 is not known
//	10.8.0.0/16, fd08::/64 through the gateway of eth0, with an MTU of 1300
//	172.31.0.0/16 is unreachable, 172.30.0.0/16 a blackhole, 172.29.0.0/16
//	prohibited, and so are fd31::/64 and so on
var (
	MacEth0    = [6]byte{2, 0, 0, 0, 0, 2}
	MacEth1    = [6]byte{2, 0, 0, 0, 1, 2}
	MacAbove   = [6]byte{2, 0, 0, 0, 0, 5}
	MacGateway = [6]byte{2, 0, 0, 0, 0, 1}
	MacBeyond  = [6]byte{2, 0, 0, 0, 1, 3}

	Own4 = Addr("172.16.0.2")
	Own6 = Addr("fd00::2")
)

func Addr(text string) wire.Addr { return netip.MustParseAddr(text).As16() }

// The addresses in worlds, IPv4 and IPv6.
var (
	// vips: the first has frontends with single ports, the second with ranges, the third
	// with whole addresses.
	Vips = [3][2]string{{"10.1.1.1", "2001:db8:1::1"}, {"10.1.1.2", "2001:db8:1::2"}, {"10.1.1.3", "2001:db8:1::3"}}
	// LocalVIPs are also addresses of this host.
	LocalVIPs = [2]string{"10.1.1.9", "2001:db8:1::9"}
	// ServerNets are where backends are: on the wires, behind routers, unreachable.
	ServerNets = [2][]string{
		{"172.16.0.32", "172.16.0.32", "172.17.0.32", "172.16.5.1", "10.9.0.1", "10.8.0.1", "172.31.0.1", "172.30.0.1", "172.29.0.1", "172.16.0.9"},
		{"fd00::20", "fd00::20", "fd01::20", "fd55::1", "fd09::1", "fd08::1", "fd31::1", "fd30::1", "fd29::1", "fd00::9"},
	}
	Clients  = [2]string{"192.168.0.1", "2001:db8::1"}
	PeerNets = [2]string{"172.18.0.60", "fd18::60"}
)

// UnknownAddrs are not load balancers.
var UnknownAddrs = [2]string{"172.18.0.99", "fd18::99"}

func Nth(first string, i int) netip.Addr {
	a := netip.MustParseAddr(first)
	for range i {
		a = a.Next()
	}
	return a
}

func Family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}
