package xdp

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/dataplane/internal/devices"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/internal/bpfmap"
	"github.com/fairlead/fairlead/internal/netlist"
)

// macWatch maintains the MAC addresses that frames may be for, according to the devices
// (bpf/balancer/mac.h).
type macWatch struct {
	d     *DataPlane
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

// watchMACs writes the MAC addresses, and again whenever a device changes, until the data
// plane is closed. It works in the calling thread's network namespace.
func (d *DataPlane) watchMACs() error {
	nl, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("xdp: MAC addresses: %w", err)
	}
	w := &macWatch{d: d, nl: nl, stop: make(chan struct{}), done: make(chan struct{})}
	if w.watch, err = devices.NewWatch(devices.Links); err != nil {
		nl.Close()
		return fmt.Errorf("xdp: MAC addresses: %w", err)
	}
	d.macs = w
	go w.run()
	return w.write()
}

func (w *macWatch) run() {
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

func (w *macWatch) close() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.done
	w.watch.Close()
	w.nl.Close()
}

// write makes the program accept frames for the current devices.
func (w *macWatch) write() error {
	links, err := netlist.Whole(w.nl.LinkList)
	if err != nil {
		return fmt.Errorf("xdp: list devices: %w", err)
	}
	wanted, own := map[bpf.BalancerDeviceMac]uint8{}, map[uint32]uint64{}
	for _, l := range receivers(links, w.d.config.Interfaces) {
		index := uint32(l.Attrs().Index)
		wanted[bpf.BalancerDeviceMac{Ifindex: index, Mac: [6]uint8{1}}] = 0 // marks it as written
		for _, mac := range macsOf(links, l) {
			wanted[bpf.BalancerDeviceMac{Ifindex: index, Mac: mac}] = 0
		}
		if mac, ok := macOf(l); ok {
			own[index%w.d.kernel.OwnMacs.MaxEntries()] = macWord(index, mac)
		}
	}
	if err := bpfmap.Hold(w.d.kernel.DeviceMacs, wanted); err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	for slot := range w.d.kernel.OwnMacs.MaxEntries() {
		if err := w.d.kernel.OwnMacs.Put(slot, own[slot]); err != nil {
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

// macWord is the program's mac_word.
func macWord(index uint32, mac [6]byte) uint64 {
	low, high := binary.NativeEndian.Uint32(mac[:]), binary.NativeEndian.Uint16(mac[4:])
	return uint64(low) | uint64(high)<<32 | uint64(index)<<48
}
