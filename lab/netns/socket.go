package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// DialTCP opens a TCP connection from the namespace; local may be the zero Addr. Only the
// socket is created on a thread in the namespace, so that many connections can wait for
// their answer without a thread each.
func (n *NS) DialTCP(ctx context.Context, local netip.Addr, remote netip.AddrPort) (net.Conn, error) {
	conn, err := n.dialTCP(ctx, local, remote)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(remote), Err: err}
	}
	return conn, nil
}

func (n *NS) dialTCP(ctx context.Context, local netip.Addr, remote netip.AddrPort) (net.Conn, error) {
	fd, err := n.socket(remote.Addr())
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "tcp")
	defer file.Close() // net.FileConn has its own copy
	if local.IsValid() {
		// The port is selected at connect, when the peer is known: this allows many more
		// connections.
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return nil, os.NewSyscallError("setsockopt", err)
		}
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(local, 0))); err != nil {
			return nil, os.NewSyscallError("bind", err)
		}
	}
	switch err := unix.Connect(fd, sockaddr(remote)); err {
	case nil:
	case unix.EINPROGRESS:
		if err := connected(ctx, file); err != nil {
			return nil, err
		}
	default:
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(file)
}

func (n *NS) socket(remote netip.Addr) (fd int, err error) {
	family := unix.AF_INET6
	if remote.Is4() {
		family = unix.AF_INET
	}
	err = n.here(func() error {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return os.NewSyscallError("socket", err)
	})
	return fd, err
}

// connected waits for a pending connection.
func connected(ctx context.Context, file *os.File) error {
	stop := context.AfterFunc(ctx, func() { file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		failed = os.NewSyscallError("connect", err)
		if failed != nil {
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return !errors.Is(err, unix.ENOTCONN)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return failed
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// ServeTCP calls serve for each connection, all at the same time, and closes it afterwards.
// It returns when the listener is closed.
func ServeTCP(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}
