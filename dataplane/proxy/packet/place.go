package packet

import (
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/tc"
)

// place is the location of the clients whose packets arrive on a device.
type place string

const (
	outside     place = "outside"
	outsideBare place = "outside, without Ethernet"
	inside      place = "inside"
)

// placesOf returns the devices that need programs: all with their own addresses, but for
// a bridge with pods its ports, which see traffic between pods. Packets through a bridge
// on which the node has no address are for others, such as packets to a Service's address
// for a load balancer in a pod there.
func placesOf(v *devices.View) map[int]place {
	at := map[int]place{}
	bridged := map[int]bool{}
	for _, d := range v.Devices {
		if m, ok := v.Devices[d.Master]; ok && m.Kind == "bridge" && !isEntrance(v, m) {
			bridged[m.Index] = true
		}
	}
	for _, d := range v.Devices {
		switch master, ok := v.Devices[d.Master]; {
		case d.Bare:
			at[d.Index] = outsideBare
		case !d.Ethernet || bridged[d.Index]:
		case ok && bridged[master.Index] && !isAt(v, master):
		case ok && master.Kind != "vrf" && !bridged[master.Index]:
			// A member of a bond, or a port of a bridge to the network:
			// handled at the master.
		case devices.IsPodKind(d.Kind) && d.Kind != "bridge" && !isEntrance(v, d):
			at[d.Index] = inside
		default:
			at[d.Index] = outside
		}
	}
	return at
}

// isAt reports whether the node has an address there by which others reach it.
func isAt(v *devices.View, d devices.Device) bool {
	for a, index := range v.Holders {
		if index == d.Index && !a.IsLinkLocalUnicast() {
			return true
		}
	}
	return false
}

// isEntrance reports whether a device leads to the network: by configuration, or because
// it has a route with a gateway.
func isEntrance(v *devices.View, d devices.Device) bool {
	for _, name := range v.Uplinks {
		if name == d.Name {
			return true
		}
	}
	return len(v.Uplinks) == 0 && (v.Defaults[d.Index] || v.Gateways[d.Index])
}

// programs are those of a place: for received and for sent packets.
var programs = map[place][2]string{
	outside:     {packetProgFromOutside, packetProgLeaving},
	outsideBare: {packetProgFromOutsideBare, packetProgLeavingBare},
	inside:      {packetProgFromInside, packetProgLeaving},
}

func points(at map[int]place) map[tc.Point]bool {
	wanted := map[tc.Point]bool{}
	for index, p := range at {
		for _, program := range programs[p] {
			wanted[tc.Point{Device: index, Program: program}] = true
		}
	}
	return wanted
}

// bridgesOf returns the bridge of each port with pods.
func bridgesOf(v *devices.View, at map[int]place) map[uint32]uint32 {
	bridges := map[uint32]uint32{}
	for index := range at {
		if m := v.Devices[v.Devices[index].Master]; m.Kind == "bridge" {
			bridges[uint32(index)] = uint32(m.Index)
		}
	}
	return bridges
}
