// Package tunnel carries packets of a tun device in UDP, as flannel's udp backend does.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// ready is the line that a child process prints when it is ready for use.
const ready = "ready"

// Process is a process of Forward, and its two threads that carry packets.
type Process struct {
	PID     int
	Threads [2]int
}

// Start runs Forward in a node. The process ends with the node.
func Start(ctx context.Context, node *lab.Host, dev string, port uint16, local, peer netip.Addr) (f Process, err error) {
	at := func(a netip.Addr) string { return netip.AddrPortFrom(a, port).String() }
	p, _, out, err := node.Converse(lab.Self("bench", "cni-forward", "--dev", dev, "--local", at(local), "--peer", at(peer)))
	if err != nil {
		return f, err
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { out.Close() })
	defer stop()
	f.PID = p.PID()
	if _, err := fmt.Fscanf(out, ready+" %d %d\n", &f.Threads[0], &f.Threads[1]); err != nil {
		return f, fmt.Errorf("the forwarder has ended: %w", err)
	}
	return f, nil
}

// Forward creates a tun device and exchanges its packets over UDP with a peer that does
// the same, until reading from either fails. It prints a line with the IDs of the threads
// of both directions to out when the device exists. This is how flannel's udp backend works: every packet crosses into this process
// and out again, at both ends.
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
	threads, ended := make(chan int, 2), make(chan error, 2)
	for _, way := range [][2]int{{tun, socket}, {socket, tun}} {
		go func() {
			runtime.LockOSThread()
			threads <- unix.Gettid()
			ended <- carry(way[0], way[1])
		}()
	}
	fmt.Fprintln(out, ready, <-threads, <-threads)
	return <-ended
}

// openTun creates the device. Its packets have no header (IFF_NO_PI).
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

// carry copies packets one by one. Like a wire, it loses what cannot be sent immediately.
func carry(from, to int) error {
	for packet := make([]byte, 1<<16); ; {
		n, err := unix.Read(from, packet)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNREFUSED): // the peer is not up yet
			continue
		case err != nil:
			return fmt.Errorf("read a packet: %w", err)
		}
		_, _ = unix.Write(to, packet[:n])
	}
}
