// Package packet opens sockets for ARP and neighbor discovery frames. Package
// advertise/l2/wire encodes and decodes them.
package packet

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/advertise/l2/wire"
)

// Open returns a socket for the frames of one interface and EtherType, without those that
// this host sends; for IPv6, only neighbor solicitations and advertisements. It belongs
// to the network namespace of the calling thread.
func Open(index int, etherType uint16) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := os.NewFile(uintptr(fd), "packets")
	fail := func(err error) (*os.File, error) { return nil, errors.Join(err, s.Close()) }
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fail(err)
	}
	if etherType == wire.EtherTypeIPv6 {
		program := unix.SockFprog{Len: uint16(len(onlyNeighbors)), Filter: &onlyNeighbors[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
			return fail(err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: etherType<<8 | etherType>>8, Ifindex: index}); err != nil {
		return fail(err)
	}
	return s, nil
}

// onlyNeighbors passes ICMPv6 types 135 and 136: all other IPv6 traffic of the node
// costs no more than this filter.
var onlyNeighbors = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 14 + 6}, // next header
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 58, Jf: 4},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 14 + 40}, // type
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 135, Jt: 1},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 136, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 2048},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}
