package refuse

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	tid   uint32 // in this process's PID namespace
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

// judge applies rules to system calls.
type judge struct {
	rules    []Rule
	rejected []atomic.Int64 // number of calls, by rule
	log      io.Writer
}

func newJudge(rules []Rule, log io.Writer) *judge {
	return &judge{rules, make([]atomic.Int64, len(rules)), log}
}

// summarize shows rules that matched nothing.
func (j *judge) summarize() {
	for i, r := range j.rules {
		fmt.Fprintf(j.log, "refuse: %v: rejected %d calls\n", r, j.rejected[i].Load())
	}
}

// serve answers notifications until no process has the filter any more.
func (j *judge) serve(listener int) {
	// Switch between caller and supervisor on one CPU: several times faster.
	// Linux before 6.6 cannot, and need not.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	for {
		var n notification
		switch err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOENT): // the caller has exited, or all have
			if hungUp(listener) {
				return
			}
		case err != nil:
			fmt.Fprintf(j.log, "refuse: receive a notification: %v\n", err)
			return
		default:
			j.answer(listener, n)
		}
	}
}

func hungUp(listener int) bool {
	poll := []unix.PollFd{{Fd: int32(listener)}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&unix.POLLHUP != 0
}

func (j *judge) answer(listener int, n notification) {
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	c := &call{tid: int(n.tid), nr: int(n.nr), args: n.args}
	for i, rule := range j.rules {
		if !rule.matches(c) {
			continue
		}
		// If the caller has exited, what was read may belong to another process.
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) != nil {
			return
		}
		r.flags, r.error = 0, -int32(rule.Errno)
		j.rejected[i].Add(1)
		fmt.Fprintf(j.log, "refuse: %v: system call %d of thread %d\n", rule, n.nr, n.tid)
		break
	}
	// It fails only if the caller has exited.
	_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}
