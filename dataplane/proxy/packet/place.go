package packet

import (
	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/tc"
)

// place is which clients send packets in by a device.
type place string

const (
	outside     place = "outside"
	outsideBare place = "outside, without Ethernet"
	inside      place = "inside"
)

// placesOf says which devices programs belong to: all with addresses of their
// own, but of a bridge for pods its ports, which see what goes
// from one pod to another. What passes a bridge that the node has no address at
// is for others, as a Service's address is for a balancer in a pod there.
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
			// A member of a bond, or a port of a bridge to the network: that has it.
		case devices.IsPodKind(d.Kind) && d.Kind != "bridge" && !isEntrance(v, d):
			at[d.Index] = inside
		default:
			at[d.Index] = outside
		}
	}
	return at
}

// isAt says that the node has an address there by which others reach it.
func isAt(v *devices.View, d devices.Device) bool {
	for a, index := range v.Holders {
		if index == d.Index && !a.IsLinkLocalUnicast() {
			return true
		}
	}
	return false
}

// isEntrance tells a device that leads to the network: by name, or because it
// has a route with a gateway.
func isEntrance(v *devices.View, d devices.Device) bool {
	for _, name := range v.Uplinks {
		if name == d.Name {
			return true
		}
	}
	return len(v.Uplinks) == 0 && (v.Defaults[d.Index] || v.Gateways[d.Index])
}

// programs are those of a place: where packets come in, and where they leave.
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

// bridgesOf gives the bridge of each port that pods are behind.
func bridgesOf(v *devices.View, at map[int]place) map[uint32]uint32 {
	bridges := map[uint32]uint32{}
	for index := range at {
		if m := v.Devices[v.Devices[index].Master]; m.Kind == "bridge" {
			bridges[uint32(index)] = uint32(m.Index)
		}
	}
	return bridges
}
