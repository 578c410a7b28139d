package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/netlist"
	"github.com/fairlead/fairlead/internal/netorder"
	"github.com/fairlead/fairlead/internal/sysctl"
)

// anyDevice is the mask for devices without an address.
const anyDevice = 0

func addrOf(a netip.Addr) packetAddr { return packetAddr{Word: netorder.Words(a)} }

func (a packetAddr) netip() netip.Addr { return netorder.Addr(a.Word) }

// writeMasks programs the node's addresses, by device.
func (h *Half) writeMasks(view *devices.View) error {
	addrs, err := netlist.Whole(func() ([]netlink.Addr, error) { return h.nl.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	if err := bpfmap.Hold(h.obj.PacketMasks, masksOf(view, addrs)); err != nil {
		return fmt.Errorf("write the node's addresses: %w", err)
	}
	return nil
}

// writeBridges programs the bridge of each port, if bridges do not pass traffic between
// ports to the firewall.
func (h *Half) writeBridges(view *devices.View) error {
	wanted := map[uint32]uint32{}
	if sysctl.Read("bridge/bridge-nf-call-iptables") != "1" {
		wanted = bridgesOf(view, h.places)
	}
	if err := bpfmap.Hold(h.obj.PacketBridges, wanted); err != nil {
		return fmt.Errorf("write the bridges' ports: %w", err)
	}
	return nil
}

// writeMACs programs the MAC addresses of the devices on which packets arrive.
func (h *Half) writeMACs(view *devices.View) error {
	wanted := map[uint32]packetPacketMac{}
	for index := range h.places {
		wanted[uint32(index)] = packetPacketMac{Mac: view.Devices[index].MAC}
	}
	if err := bpfmap.Hold(h.obj.PacketMacs, wanted); err != nil {
		return fmt.Errorf("write the devices' MAC addresses: %w", err)
	}
	return nil
}

// masksOf returns for each device its first address of each family that others can reply
// to; for any other device those of the first device with a default route, or else of the
// first device.
func masksOf(view *devices.View, addrs []netlink.Addr) map[uint32]packetPacketMask {
	masks := map[uint32]packetPacketMask{}
	var order []int
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok || !isUsable(a) || !(view.Devices[a.LinkIndex].Ethernet || view.Devices[a.LinkIndex].Bare) {
			continue
		}
		m := masks[uint32(a.LinkIndex)]
		if own := m.family(ip.Unmap()); *own == (packetAddr{}) {
			*own = addrOf(ip)
		}
		masks[uint32(a.LinkIndex)] = m
		order = append(order, a.LinkIndex)
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(view, a) - rank(view, b) })
	var any packetPacketMask
	for _, index := range order {
		m := masks[uint32(index)]
		if any.V4 == (packetAddr{}) {
			any.V4 = m.V4
		}
		if any.V6 == (packetAddr{}) {
			any.V6 = m.V6
		}
	}
	masks[anyDevice] = any
	return masks
}

// rank sorts the devices that lead to the network first.
func rank(view *devices.View, index int) int {
	switch {
	case view.Defaults[index]:
		return 0
	case view.Gateways[index]:
		return 1
	}
	return 2
}

func (m *packetPacketMask) family(a netip.Addr) *packetAddr {
	if a.Is4() {
		return &m.V4
	}
	return &m.V6
}

// isUsable excludes addresses that are not valid everywhere, or not for long.
func isUsable(a netlink.Addr) bool {
	const passing = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	if a.IP.To4() == nil && a.Flags&(passing|unix.IFA_F_TEMPORARY) != 0 {
		return false
	}
	return a.Scope == int(netlink.SCOPE_UNIVERSE)
}

// Ports available for masks: not the well-known ones, and not those of node ports (the
// API server's --service-node-port-range).
const (
	portFirst     = 1024
	portLast      = 65535
	nodePortFirst = 30000
	nodePortLast  = 32767
)

// setPorts sets the ports of masked flows in the programs: the largest range outside
// those that the kernel assigns to sockets, so that no socket has one.
func setPorts(spec *ebpf.CollectionSpec) error {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return fmt.Errorf("ports of sockets: %w", err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return fmt.Errorf("ports of sockets: %q: %w", text, err)
	}
	from, to := freePorts(first, last)
	if to < from {
		return fmt.Errorf("sysctl net.ipv4.ip_local_port_range is %d %d: exclude some ports between %d and %d from it: masked flows use them as source ports", first, last, portFirst, portLast)
	}
	return errors.Join(
		spec.Variables[packetVarMaskFirst].Set(uint16(from)),
		spec.Variables[packetVarMaskCount].Set(uint16(to-from+1)),
	)
}

// freePorts returns the largest range of ports that are neither sockets' nor node
// ports; to < from if no port is left.
func freePorts(first, last int) (from, to int) {
	from, to = portFirst, portFirst-1
	begin := portFirst
	taken := [][2]int{{first, last}, {nodePortFirst, nodePortLast}, {portLast + 1, portLast + 1}}
	slices.SortFunc(taken, func(a, b [2]int) int { return a[0] - b[0] })
	for _, t := range taken {
		if t[0]-begin > to-from+1 {
			from, to = begin, t[0]-1
		}
		begin = max(begin, t[1]+1)
	}
	return from, to
}
