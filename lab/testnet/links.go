// Package testnet is what tests of programs at tc have in common: links between
// namespaces, servers there and clients that talk to them, and a program run as
// its device would.
package testnet

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Namespaces makes one for each place given, all ended with the test. Link-local
// addresses are good there at once: nothing asks for a neighbour before
// (ndisc_solicit in net/ipv6/ndisc.c).
func Namespaces(t testing.TB, places ...**netns.NS) {
	t.Helper()
	for _, p := range places {
		*p = testkit.NetNS(t)
		testkit.Do(t, *p, func() error { return netns.WriteSysctl("net.ipv6.conf.default.accept_dad", "0") })
	}
}

// Forward has the calling thread's namespace forward packets.
func Forward() error {
	return errors.Join(netns.WriteSysctl("net.ipv4.ip_forward", "1"), netns.WriteSysctl("net.ipv6.conf.all.forwarding", "1"))
}

// Pair connects two namespaces.
func Pair(t testing.TB, a *netns.NS, nameA string, b *netns.NS, nameB string) {
	t.Helper()
	testkit.Do(t, a, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.FD())})
	})
}

// Bridge makes one with these addresses, up.
func Bridge(name string, addrs ...string) error {
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		return err
	}
	return Address(name, addrs...)
}

// Enslave makes a device a bridge's port and brings it up.
func Enslave(port, bridge string) error {
	l, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	b, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetMaster(l, b), netlink.LinkSetUp(l))
}

// Address gives a device addresses that are usable at once, and brings it up.
func Address(device string, addrs ...string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("%s: address %s: %w", device, a, err)
		}
	}
	return nil
}

// Offload sets one feature of a device, as unix.ETHTOOL_STXCSUM does, which with
// 0 has it be given whole packets with whole checksums (linux/ethtool.h).
func Offload(device string, feature, value uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	data := [2]uint32{feature, value}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&data)}
	copy(req.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return os.NewSyscallError("ethtool "+device, errno)
	}
	return nil
}

// Run gives a frame to a program as if it passed a device of the namespace, and
// gives the verdict and what became of the frame.
func Run(t testing.TB, ns *netns.NS, program *ebpf.Program, device int, frame []byte) (verdict int, out []byte) {
	t.Helper()
	const contextIfindex = 10 // the place of ifindex among the words of struct __sk_buff
	var context [48]uint32
	context[contextIfindex] = uint32(device)
	opts := ebpf.RunOptions{Data: slices.Clone(frame), DataOut: make([]byte, len(frame)+256), Context: context[:]}
	var v uint32
	testkit.Do(t, ns, func() (err error) {
		v, err = program.Run(&opts)
		return err
	})
	return int(int32(v)), opts.DataOut
}
