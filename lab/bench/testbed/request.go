package testbed

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Request opens a connection to a Service and reads the byte that the server sends. It
// returns how long the connect took and how many packets were retransmitted.
func Request(to netip.Addr, limit time.Duration) (took time.Duration, lost uint32, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		t := unix.NsecToTimeval(limit.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &t); err != nil {
			return 0, 0, err
		}
	}
	// With linger 0, the port is free as soon as the connection is closed.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.As4(), Port: ServicePort})
	}
	took = time.Since(began)
	if err != nil && err != unix.EISCONN && err != unix.EALREADY {
		return took, 0, fmt.Errorf("connect to %s: %w", to, err)
	}
	var b [1]byte
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Read(fd, b[:])
	}
	if err != nil {
		return took, 0, fmt.Errorf("an answer of %s: %w", to, err)
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return took, 0, err
	}
	return took, info.Total_retrans, nil
}
