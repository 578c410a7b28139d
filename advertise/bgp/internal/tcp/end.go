package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// IsTimeout reports whether our own deadline was exceeded, not one of the kernel's.
func IsTimeout(err error) bool {
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return errors.As(err, &ne) && ne.Timeout() && !errors.Is(err, unix.ETIMEDOUT)
}

// IsEnd reports whether the peer ended the connection.
func IsEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)
}

// EndWords explains why an open connection ended.
func EndWords(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "the peer closed the connection: its process ended"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "the peer reset the connection: its process or machine restarted"
	case errors.Is(err, unix.ETIMEDOUT):
		return "the connection timed out: the peer or the path to it failed"
	case errors.Is(err, net.ErrClosed):
		return "the session was closed"
	}
	return err.Error()
}

// DialWords explains why a connection was not established, and what to check. It is the same
// for each attempt, so that a reader of the log sees when the reason changes.
func (d Target) DialWords(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Sprintf("%s refuses connections: nothing listens there. Start the peer, or correct its address or port", d.To)
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return fmt.Sprintf("no route to %s: check the address and this machine's routes", d.To.Addr())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Sprintf("%s is not an address of this machine: correct the local address", d.From)
	case IsTimeout(err), errors.Is(err, unix.ETIMEDOUT):
		password := "it requires a TCP MD5 password"
		if d.Password != "" {
			password = "the TCP MD5 passwords differ"
		}
		return fmt.Sprintf("no answer from %s within %s: it is down or unreachable, a filter drops BGP, or %s", d.To, ConnectTimeout, password)
	}
	return err.Error()
}

// Farewell sends a peer the last message, the NOTIFICATION that ends a session, if it
// accepts that in time.
// The kernel resets a connection that is closed with unread data, and the reset can
// overtake the NOTIFICATION: therefore a copy of the socket stays open until the peer
// closes it, for at most a second, and reads what arrives.
func Farewell(c *net.TCPConn, message []byte, in time.Duration) {
	_ = c.SetWriteDeadline(time.Now().Add(in))
	if _, err := c.Write(message); err != nil || c.CloseWrite() != nil {
		return
	}
	f, err := c.File()
	if err != nil {
		return
	}
	_ = f.SetReadDeadline(time.Now().Add(time.Second))
	go func() {
		defer f.Close()
		_, _ = io.Copy(io.Discard, f)
	}()
}

// Unacknowledged returns how many written octets the peer's kernel has not acknowledged;
// all of them if unknown.
func Unacknowledged(c *net.TCPConn, written uint64) uint64 {
	raw, err := c.SyscallConn()
	if err != nil {
		return written
	}
	left := written
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			left = min(written, uint64(n))
		}
	})
	return left
}
