// Package ownns moves threads between network namespaces without requiring more privileges
// than necessary: setns(2) requires CAP_SYS_ADMIN even if the thread is already in the
// namespace, which is always the case for an agent that serves only its own.
package ownns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Enter moves the calling thread, which the caller has locked, into the network namespace
// that fd refers to. Without CAP_SYS_ADMIN it succeeds only if the thread is already there.
func Enter(fd int) error {
	if here(fd) {
		return nil
	}
	err := unix.Setns(fd, unix.CLONE_NEWNET)
	if err == unix.EPERM {
		return fmt.Errorf("enter a network namespace: %w: the process lacks CAP_SYS_ADMIN", err)
	}
	if err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// here reports whether fd refers to the calling thread's namespace: each namespace has one
// inode (ioctl_ns(2)).
func here(fd int) bool {
	var own, other unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &own) != nil || unix.Fstat(fd, &other) != nil {
		return false
	}
	return own.Dev == other.Dev && own.Ino == other.Ino
}

// Cookie identifies the calling thread's network namespace until the machine reboots, as
// BPF programs see it (bpf_get_netns_cookie; SO_NETNS_COOKIE, Linux 5.14).
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("own network namespace: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("own network namespace: %w", err)
	}
	return cookie, nil
}
