package xdp

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disableGRO turns an interface's generic receive offload off. A generic
// program runs behind it, sees packets that were joined to more than the MTU,
// and could only drop them. (A driver with a native program does not join
// before it.)
func disableGRO(name string) error {
	if err := setOffload(name, unix.ETHTOOL_SGRO, 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("turn GRO off: %w", err)
	}
	return nil
}

// setOffload is one of the older ethtool calls that set a single value.
func setOffload(name string, cmd, value uint32) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	arg := struct{ cmd, value uint32 }{cmd, value} // struct ethtool_value
	// struct ifreq with its pointer in the union (netdevice(7)).
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&arg)}
	copy(req.name[:], ifr.Name())
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}
