// Package ethtool queries and changes network devices by the calls of linux/ethtool.h, for
// which golang.org/x/sys/unix has only constants.
package ethtool

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Value is struct ethtool_value.
type Value struct{ Command, Data uint32 }

// Call makes the call that a request, one of the structs of linux/ethtool.h, begins with,
// for a device of the calling thread's network namespace. The kernel answers in the request.
func Call[T any](device string, request *T) error {
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
	copy(ifreq.name[:unix.IFNAMSIZ-1], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifreq))); errno != 0 {
		return errno
	}
	return nil
}
