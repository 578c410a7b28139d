// Package ethtool queries and changes network devices by the calls of linux/ethtool.h, for
// which golang.org/x/sys/unix has only constants.
package ethtool

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Value is struct ethtool_value.
type Value struct{ Command, Data uint32 }

// CallValue makes one of the older calls with a single value: it sets or returns that.
func CallValue(device string, command, value uint32) (uint32, error) {
	v := Value{command, value}
	err := Call(device, &v)
	return v.Data, err
}

// Call makes the call that a request, one of the structs of linux/ethtool.h, begins with,
// for a device of the calling thread's network namespace. The kernel answers in the request.
func Call[T any](device string, request *T) error {
	if len(device) >= unix.IFNAMSIZ {
		return unix.EINVAL // it would be cut to another name
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifreq := struct { // struct ifreq (netdevice(7))
		name [unix.IFNAMSIZ]byte
		data *T
		_    [16]byte
	}{data: request}
	copy(ifreq.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifreq))); errno != 0 {
		return errno
	}
	return nil
}
