package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/lab/budget"
)

// channels is struct ethtool_channels.
type channels struct {
	Command                             uint32
	MaxRX, MaxTX, MaxOther, MaxCombined uint32
	RX, TX, Other, Combined             uint32
}

// ReceiveInThreads makes a kernel thread of each of an interface's receive queues process
// its packets, instead of the CPU on which they arrive, and returns these threads. The
// other end must not have offloads: from one that segments, a veth takes another way.
func (h *Host) ReceiveInThreads(dev string, queues int) (threads []budget.KernelThread, err error) {
	err = h.Do(func() error {
		set := channels{Command: unix.ETHTOOL_SCHANNELS, RX: uint32(queues), TX: uint32(queues)}
		if err := ethtool.Call(dev, &set); err != nil {
			return fmt.Errorf("%d queues: %w", queues, err)
		}
		_, err := ethtool.CallValue(dev, unix.ETHTOOL_SGRO, 1) // a veth has no NAPI without
		return err
	})
	if err == nil {
		err = h.inSysfs(func() error {
			threaded := filepath.Join("/sys/class/net", dev, "threaded")
			return errors.Join(os.WriteFile(threaded, []byte("0"), 0), os.WriteFile(threaded, []byte("1"), 0)) // a new queue gets no thread otherwise
		})
	}
	if err == nil {
		err = h.Do(func() error {
			threads, err = receivers(dev)
			return err
		})
	}
	if err == nil && len(threads) != queues {
		err = fmt.Errorf("%d threads for %d queues", len(threads), queues)
	}
	if err != nil {
		return nil, fmt.Errorf("host %s: %s: receive in threads: %w", h.Name(), dev, err)
	}
	return threads, nil
}

// Names from include/uapi/linux/netdev.h for its generic netlink family.
const (
	cmdGetNAPI  = 11
	napiIfindex = 1
	napiID      = 2
)

// receivers asks for the threads of an interface in this namespace (Linux 6.8). The kernel
// has their PIDs, too, but not for a sandbox with its own.
func receivers(dev string) (threads []budget.KernelThread, err error) {
	link, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, err
	}
	family, err := netlink.GenlFamilyGet("netdev")
	if err != nil {
		return nil, fmt.Errorf("generic netlink family netdev: %w", err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	request.AddRawData(append([]byte{cmdGetNAPI, 1, 0, 0}, nl.NewRtAttr(napiIfindex, nl.Uint32Attr(uint32(link.Index))).Serialize()...))
	answers, err := dump(request)
	for _, answer := range answers {
		attrs, malformed := nl.ParseRouteAttr(answer[nl.SizeofGenlmsg:])
		err = errors.Join(err, malformed)
		for _, a := range attrs {
			if a.Attr.Type == napiID && len(a.Value) == 4 {
				threads = append(threads, budget.KernelThread(binary.NativeEndian.Uint32(a.Value)))
			}
		}
	}
	return threads, err
}

// dump reads until the end. Execute stops after the first of these messages, because
// they lack the flag of a dump.
func dump(request *nl.NetlinkRequest) (all [][]byte, err error) {
	s, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Send(request); err != nil {
		return nil, err
	}
	for {
		messages, _, err := s.Receive()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return all, nil
			case unix.NLMSG_ERROR:
				return nil, syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
			all = append(all, m.Data)
		}
	}
}
