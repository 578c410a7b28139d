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

// setOffloads turns an end's offloads to what the drawing asks for.
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

// Offload turns an interface's help with what is sent on or off: with it the kernel
// hands on up to 64 KiB as one packet and leaves checksums to be filled in; without
// it, as to a device that can do neither, packets of the MTU with their checksums.
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
		// Segmentation needs checksums: they are on first, and the kernel takes the
		// one off with the other.
		for _, cmd := range []uint32{unix.ETHTOOL_STXCSUM, unix.ETHTOOL_SGSO, unix.ETHTOOL_STSO} {
			if _, err := ethtool(fd, dev, cmd, value); err != nil {
				return fmt.Errorf("host %s: %s: offloads: %w", h.Name(), dev, err)
			}
		}
		return nil
	})
}

// ethtool does one of the ethtool ioctls that set or get a single value.
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

// TxChecksumOff makes the kernel fill in checksums before a packet leaves a device,
// as an End with that does.
func TxChecksumOff(ns *netns.NS, device string) error {
	return setOffloads(ns, End{Dev: device, TxChecksumOff: true})
}
