package refuse

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	tid   uint32 // as this process's PID namespace has it
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// serve answers notifications until no process has the filter any more.
func serve(listener int, rules []Rule, verbose io.Writer) {
	// Switch between caller and supervisor on one CPU: several times faster.
	// Linux before 6.6 cannot, and need not.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	for {
		var n notification
		switch err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOENT): // the caller has ended, or all have
			if hungUp(listener) {
				return
			}
		case err != nil:
			fmt.Fprintf(verbose, "refuse: receive a notification: %v\n", err)
			return
		default:
			answer(listener, n, rules, verbose)
		}
	}
}

func hungUp(listener int) bool {
	poll := []unix.PollFd{{Fd: int32(listener)}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&unix.POLLHUP != 0
}

func answer(listener int, n notification, rules []Rule, verbose io.Writer) {
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	c := &call{tid: int(n.tid), nr: int(n.nr), args: n.args}
	for _, rule := range rules {
		if !rule.matches(c) {
			continue
		}
		// If the caller has ended, what was read may be another process's.
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) != nil {
			return
		}
		r.flags, r.error = 0, -int32(rule.Errno)
		fmt.Fprintf(verbose, "refuse: %v: system call %d of thread %d\n", rule, n.nr, n.tid)
		break
	}
	// It fails only where the caller has ended.
	_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}
