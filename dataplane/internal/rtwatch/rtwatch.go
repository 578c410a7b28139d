// Package rtwatch tells that the kernel's devices, addresses or routes changed,
// not what: who asks looks at the whole again. So a message that the kernel had
// no room for is no loss.
package rtwatch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Watch watches a network namespace until Close.
type Watch struct {
	// Changed gets one message for one or more changes.
	Changed <-chan struct{}
	changed chan struct{}
	socket  *os.File
}

// Open watches the calling thread's network namespace for what groups say
// (RTMGRP_, rtnetlink(7)).
func Open(groups uint32) (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	w := &Watch{changed: make(chan struct{}, 1), socket: os.NewFile(uintptr(fd), "rtnetlink")}
	w.Changed = w.changed
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
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// Close ends it; Changed stays open.
func (w *Watch) Close() error { return w.socket.Close() }
