package devices

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/wake"
)

// Watch reports that devices, addresses or routes changed, but not which: the receiver
// reads all of them again. So messages lost to a full kernel buffer do no harm.
type Watch struct {
	Changed chan struct{}
	socket  *os.File
}

// What can be watched: the kernel's multicast groups.
const (
	Links = unix.RTMGRP_LINK
	All   = Links | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR
)

// NewWatch watches these groups in the calling thread's network namespace until Close.
func NewWatch(groups uint32) (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	w := &Watch{Changed: make(chan struct{}, 1), socket: os.NewFile(uintptr(fd), "rtnetlink")}
	go w.run()
	return w, nil
}

func (w *Watch) run() {
	buf := make([]byte, 1<<16)
	for {
		_, err := w.socket.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return // closed
		}
		wake.Up(w.Changed)
	}
}

// Close stops watching.
func (w *Watch) Close() { w.socket.Close() }
