package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// ethtoolValue is struct ethtool_value (linux/ethtool.h).
type ethtoolValue struct {
	cmd, data uint32
}

// ifreqData is struct ifreq with a pointer in its union (netdevice(7)).
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data *ethtoolValue
	_    [16]byte
}

// setOffloads sets the offloads of an end as in the topology.
func setOffloads(ns *netns.NS, e End) error {
	if !e.TxChecksumOff && !e.GRO {
		return nil
	}
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if e.TxChecksumOff {
			if _, err := ethtool(fd, e.Dev, unix.ETHTOOL_STXCSUM, 0); err != nil {
				return fmt.Errorf("tx checksum offload off: %w", err)
			}
		}
		if e.GRO {
			if _, err := ethtool(fd, e.Dev, unix.ETHTOOL_SGRO, 1); err != nil {
				return fmt.Errorf("GRO on: %w", err)
			}
		}
		return nil
	})
}

// Offload turns an interface's transmit offloads on or off. With them the kernel passes
// on up to 64 KiB as one packet and leaves checksums incomplete; without them, packets of
// the MTU with complete checksums, as to a device that supports neither.
func (h *Host) Offload(dev string, on bool) error {
	return h.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		value := uint32(0)
		if on {
			value = 1
		}
		// Segmentation needs checksums: they are turned on first, and the kernel turns
		// segmentation off with checksums.
		for _, cmd := range []uint32{unix.ETHTOOL_STXCSUM, unix.ETHTOOL_SGSO, unix.ETHTOOL_STSO} {
			if _, err := ethtool(fd, dev, cmd, value); err != nil {
				return fmt.Errorf("host %s: %s: offloads: %w", h.Name(), dev, err)
			}
		}
		return nil
	})
}

// ethtool makes one of the ethtool ioctls that set or get a single value.
func ethtool(fd int, dev string, cmd, data uint32) (uint32, error) {
	value := ethtoolValue{cmd: cmd, data: data}
	req := ifreqData{data: &value}
	copy(req.name[:unix.IFNAMSIZ-1], dev)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return 0, errno
	}
	return value.data, nil
}

// TxChecksumOff makes the kernel complete checksums before a packet leaves a device, like
// an End with that setting.
func TxChecksumOff(ns *netns.NS, device string) error {
	return setOffloads(ns, End{Dev: device, TxChecksumOff: true})
}
