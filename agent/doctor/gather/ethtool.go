package gather

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
)

// driverOf returns the name of an interface's driver, or "".
func driverOf(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// channels is struct ethtool_channels (linux/ethtool.h).
type channels struct {
	cmd                                 uint32
	maxRX, maxTX, maxOther, maxCombined uint32
	rx, tx, other, combined             uint32
}

// queuesOf returns the receive queues of an interface. Devices that do not support the
// query have none.
func queuesOf(name string) (doctor.Queues, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return doctor.Queues{}, err
	}
	defer unix.Close(fd)
	c := channels{cmd: unix.ETHTOOL_GCHANNELS}
	request := struct { // struct ifreq (netdevice(7))
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&c)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return doctor.Queues{}, errno
	}
	return doctor.Queues{RX: int(c.rx + c.combined), MaxRX: int(c.maxRX + c.maxCombined)}, nil
}
