// Package testnet is shared by tests of tc programs: links between namespaces, servers
// and clients there, running a program as its device would, and detaching one.
package testnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/ethtool"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Namespaces creates one for each pointer, all of which end with the test. Link-local
// addresses can be used immediately: otherwise neighbors could not be resolved
// (ndisc_solicit in net/ipv6/ndisc.c).
func Namespaces(t testing.TB, places ...**netns.NS) {
	t.Helper()
	for _, p := range places {
		*p = testkit.NetNS(t)
		testkit.Do(t, *p, func() error { return netns.WriteSysctl("net.ipv6.conf.default.accept_dad", "0") })
	}
}

// Forward enables forwarding in the calling thread's namespace.
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

// Bridge creates a bridge with these addresses, up.
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

// Address gives a device addresses that can be used immediately, and brings it up.
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

// Offload sets one feature of a device, such as unix.ETHTOOL_STXCSUM, which with 0 makes
// the kernel pass it packets with complete checksums (linux/ethtool.h).
func Offload(device string, feature, value uint32) error {
	return os.NewSyscallError("ethtool "+device, ethtool.Call(device, &ethtool.Value{Command: feature, Data: value}))
}

// Run runs a program on a frame as if it passed a device of the namespace, and returns
// the verdict and the resulting frame.
func Run(t testing.TB, ns *netns.NS, program *ebpf.Program, device int, frame []byte) (verdict int, out []byte) {
	t.Helper()
	const contextIfindex = 10 // index of ifindex among the words of struct __sk_buff
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

// Detach detaches the programs whose links are pinned below a folder, as another program on
// the machine might.
func Detach(t testing.TB, folder string) {
	t.Helper()
	detached := 0
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(filepath.Base(path), "link_") {
			return err
		}
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		detached++
		return errors.Join(l.Detach(), l.Close())
	})
	if err != nil || detached == 0 {
		t.Fatalf("detached %d links below %s: %v", detached, folder, err)
	}
}
