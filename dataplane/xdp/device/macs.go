package device

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/netlist"
)

// MACWatch maintains the MAC addresses that frames may be for, according to the devices
// (bpf/balancer/mac.h).
type MACWatch struct {
	names []string // of the interfaces
	maps  *bpf.BalancerMaps
	nl    *netlink.Handle
	watch *devices.Watch
	stop  chan struct{}
	done  chan struct{}
}

// Changes come in bursts. A failed read is retried.
const (
	macPause = 100 * time.Millisecond
	macRetry = time.Second
)

// WatchMACs writes the MAC addresses for which a program at these interfaces accepts frames,
// and again whenever a device changes, until Close. It works in the calling thread's network
// namespace.
func WatchMACs(interfaces []string, maps *bpf.BalancerMaps) (*MACWatch, error) {
	nl, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("xdp: MAC addresses: %w", err)
	}
	w := &MACWatch{names: interfaces, maps: maps, nl: nl, stop: make(chan struct{}), done: make(chan struct{})}
	if w.watch, err = devices.NewWatch(devices.Links); err != nil {
		nl.Close()
		return nil, fmt.Errorf("xdp: MAC addresses: %w", err)
	}
	go w.run()
	if err := w.write(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *MACWatch) run() {
	defer close(w.done)
	var retry <-chan time.Time
	for {
		select {
		case <-w.stop:
			return
		case <-w.watch.Changed:
		case <-retry:
		}
		retry = nil
		if err := w.write(); err != nil {
			slog.Error("failed to update the accepted MAC addresses, will retry", "error", err)
			retry = time.After(macRetry)
		}
		select {
		case <-w.stop:
			return
		case <-time.After(macPause):
		}
	}
}

// Close ends it, if it is not nil.
func (w *MACWatch) Close() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.done
	w.watch.Close()
	w.nl.Close()
}

// write makes the program accept frames for the current devices.
func (w *MACWatch) write() error {
	links, err := netlist.Whole(w.nl.LinkList)
	if err != nil {
		return fmt.Errorf("xdp: list devices: %w", err)
	}
	wanted, own := map[bpf.BalancerDeviceMac]uint8{}, map[uint32]uint64{}
	for _, l := range receivers(links, w.names) {
		index := uint32(l.Attrs().Index)
		wanted[configured(index)] = 0
		for _, mac := range macsOf(links, l) {
			wanted[bpf.BalancerDeviceMac{Ifindex: index, Mac: mac}] = 0
		}
		if mac, ok := macOf(l); ok {
			own[index%w.maps.OwnMacs.MaxEntries()] = macWord(index, mac)
		}
	}
	if err := bpfmap.Hold(w.maps.DeviceMacs, wanted); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	for slot := range w.maps.OwnMacs.MaxEntries() {
		if err := w.maps.OwnMacs.Put(slot, own[slot]); err != nil {
			return fmt.Errorf("xdp: write a device's own MAC address: %w", err)
		}
	}
	return nil
}

// receivers are the devices whose index a frame can carry: those with the given names,
// and for a bond its members.
func receivers(links []netlink.Link, names []string) []netlink.Link {
	bonds := map[int]bool{}
	for _, l := range links {
		if l.Type() == "bond" && slices.Contains(names, l.Attrs().Name) {
			bonds[l.Attrs().Index] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(links), func(l netlink.Link) bool {
		return !slices.Contains(names, l.Attrs().Name) && !bonds[l.Attrs().MasterIndex]
	})
}

// stacked are the kinds of devices that receive frames through the device in their link
// attribute. Others, such as tunnels, use that attribute for other purposes.
var stacked = []string{"vlan", "macvlan", "macvtap", "macsec"}

// macsOf returns the MAC addresses for which this host accepts frames from a device: its
// own and those of all devices on top of it.
func macsOf(links []netlink.Link, nic netlink.Link) (macs [][6]byte) {
	above := map[int]bool{nic.Attrs().Index: true}
	for queue := []netlink.Link{nic}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if mac, ok := macOf(at); ok {
			macs = append(macs, mac)
		}
		for _, l := range links {
			if !above[l.Attrs().Index] && isOnTopOf(l, at) {
				above[l.Attrs().Index] = true
				queue = append(queue, l)
			}
		}
	}
	return macs
}

// isOnTopOf reports whether frames that a device receives may go to another one. An Open
// vSwitch port does not report to which bridge it belongs.
func isOnTopOf(l, below netlink.Link) bool {
	master := below.Attrs().MasterIndex != 0 && l.Attrs().Index == below.Attrs().MasterIndex
	uses := l.Attrs().ParentIndex == below.Attrs().Index && slices.Contains(stacked, l.Type())
	return master || uses || l.Type() == "openvswitch" && below.Type() == "openvswitch"
}

func macOf(l netlink.Link) (mac [6]byte, ok bool) {
	return mac, copy(mac[:], l.Attrs().HardwareAddr) == len(mac)
}

// PresetMAC makes programs that are not loaded yet accept frames for one MAC address of a
// device, like WatchMACs. Without that, each frame takes the way of those on devices that no
// agent has configured. Another build may lack a map.
func PresetMAC(spec *ebpf.CollectionSpec, index uint32, mac [6]byte) {
	if own := spec.Maps[bpf.BalancerMapOwnMacs]; own != nil {
		own.Contents = []ebpf.MapKV{{Key: index % own.MaxEntries, Value: macWord(index, mac)}}
	}
	if devices := spec.Maps[bpf.BalancerMapDeviceMacs]; devices != nil {
		devices.Contents = []ebpf.MapKV{
			{Key: configured(index), Value: uint8(0)},
			{Key: bpf.BalancerDeviceMac{Ifindex: index, Mac: mac}, Value: uint8(0)},
		}
	}
}

// configured is the key that marks a device's addresses as written.
func configured(index uint32) bpf.BalancerDeviceMac {
	return bpf.BalancerDeviceMac{Ifindex: index, Mac: [6]uint8{1}}
}

// macWord is the program's mac_word.
func macWord(index uint32, mac [6]byte) uint64 {
	low, high := binary.NativeEndian.Uint32(mac[:]), binary.NativeEndian.Uint16(mac[4:])
	return uint64(low) | uint64(high)<<32 | uint64(index)<<48
}
