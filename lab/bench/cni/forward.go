package cni

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// afBridge is the family of forwarding entries.
const afBridge = unix.AF_BRIDGE

// ready is what a process of ours says when it can be used.
const ready = "ready"

// startForwarder runs Forward in a node, with which it ends, and gives its process.
func startForwarder(ctx context.Context, node *lab.Host, local, peer netip.Addr) (pid int, err error) {
	at := func(a netip.Addr) string { return netip.AddrPortFrom(a, tunPort).String() }
	p, _, out, err := node.Converse(lab.Self("bench", "cni-forward", "--dev", tunDev, "--local", at(local), "--peer", at(peer)))
	if err != nil {
		return 0, err
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { out.Close() })
	defer stop()
	if s := bufio.NewScanner(out); !s.Scan() || s.Text() != ready {
		return 0, fmt.Errorf("the forwarder has ended: %v", s.Err())
	}
	return p.PID(), nil
}

// Forward makes a tun device and carries its packets, in UDP, to a peer that does
// the same, until reading either fails; it says on out when the device is there. It
// is what flannel's udp backend does: every packet crosses into this process and out
// again, at both ends.
func Forward(dev string, local, peer netip.AddrPort, out io.Writer) error {
	if !local.Addr().Is4() || !peer.Addr().Is4() {
		return errors.New("--local and --peer: want addresses of IPv4")
	}
	tun, err := openTun(dev)
	if err != nil {
		return fmt.Errorf("--dev %s: %w", dev, err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}); err != nil {
		return fmt.Errorf("--local %s: %w", local, err)
	}
	if err := unix.Connect(socket, &unix.SockaddrInet4{Port: int(peer.Port()), Addr: peer.Addr().As4()}); err != nil {
		return fmt.Errorf("--peer %s: %w", peer, err)
	}
	fmt.Fprintln(out, ready)
	ended := make(chan error, 2)
	go func() { ended <- carry(tun, socket) }()
	go func() { ended <- carry(socket, tun) }()
	return <-ended
}

// openTun makes the device; its packets come without a header (IFF_NO_PI).
func openTun(dev string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	req, err := unix.NewIfreq(dev)
	if err != nil {
		return 0, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return fd, unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
}

// carry copies packets one by one. What cannot be sent now is lost, as on a wire.
func carry(from, to int) error {
	for packet := make([]byte, 1<<16); ; {
		n, err := unix.Read(from, packet)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNREFUSED): // the peer is not there yet
			continue
		case err != nil:
			return fmt.Errorf("read a packet: %w", err)
		}
		_, _ = unix.Write(to, packet[:n])
	}
}
