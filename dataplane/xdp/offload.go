package xdp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setGRO turns an interface's generic receive offload on or off. A generic
// program runs behind it, sees packets that were joined to more than the MTU,
// and could only drop them; so it must be off there. (A driver with a native
// program does not join before it.)
func setGRO(name string, on bool) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set GRO: %w", err)
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_SGRO} // struct ethtool_value
	if on {
		value.data = 1
	}
	// struct ifreq with its pointer in the union (netdevice(7)).
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(req.name[:], ifr.Name())
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 && errno != unix.EOPNOTSUPP {
		return fmt.Errorf("set GRO: %w", errno)
	}
	return nil
}
