package gather

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/doctor"
	"github.com/fairlead/fairlead/internal/ethtool"
)

// driverOf returns the name of an interface's driver, or "".
func driverOf(name string) string {
	info := unix.EthtoolDrvinfo{Cmd: unix.ETHTOOL_GDRVINFO}
	if ethtool.Call(name, &info) != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// channels is struct ethtool_channels (linux/ethtool.h).
type channels struct {
	cmd                      uint32
	maxRX, _, _, maxCombined uint32
	rx, _, _, combined       uint32
}

// queuesOf returns the receive queues of an interface. Devices that do not support the
// query have none.
func queuesOf(name string) (doctor.Queues, error) {
	c := channels{cmd: unix.ETHTOOL_GCHANNELS}
	if err := ethtool.Call(name, &c); err != nil {
		return doctor.Queues{}, err
	}
	return doctor.Queues{RX: int(c.rx + c.combined), MaxRX: int(c.maxRX + c.maxCombined)}, nil
}
