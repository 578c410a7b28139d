package packetfuzz

import (
	"math/rand/v2"
	"net"

	"github.com/fairlead/fairlead/lab/netns"
)

// SetForwarding enables forwarding of packets in this thread's namespace, in most worlds.
func SetForwarding(rng *rand.Rand) error {
	forward := "1"
	if rng.IntN(8) == 0 {
		forward = "0"
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if err := netns.WriteSysctl(name, forward); err != nil {
			return err
		}
	}
	return nil
}

// Devices returns the indexes of the devices with MAC addresses here, and the MTUs by
// index.
func Devices(macs map[string][6]byte) (indices map[string]uint32, mtus map[uint32]int, err error) {
	indices, mtus = map[string]uint32{}, map[uint32]int{}
	for name := range macs {
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return nil, nil, err
		}
		indices[name] = uint32(nic.Index)
		mtus[uint32(nic.Index)] = nic.MTU
	}
	return indices, mtus, nil
}
