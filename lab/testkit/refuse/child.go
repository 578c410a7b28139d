package refuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runChild installs the filter, hands its listener to the supervisor and executes the
// command. The arguments are the file descriptor of a socket to the supervisor, the path
// of the command, and the arguments of Parse.
func runChild(args []string) int {
	socket, err := strconv.Atoi(args[0])
	if err != nil {
		return fail(exitFailed, err)
	}
	unix.CloseOnExec(socket)
	rules, command, err := Parse(args[2:])
	if err != nil {
		return fail(exitFailed, err)
	}
	// A filter belongs to a thread; execve leaves only this thread of the process.
	runtime.LockOSThread()
	listener, err := install(filterFor(rules))
	if err != nil {
		return fail(exitFailed, err)
	}
	if err := handOver(socket, listener); err != nil {
		return fail(exitFailed, err)
	}
	err = syscall.Exec(args[1], command, os.Environ())
	return fail(exitNotRunning, fmt.Errorf("%s: %w", args[1], err))
}

// install returns the file descriptor that notifications come from, which
// execve closes.
func install(f filter) (int, error) {
	code, err := f.program()
	if err != nil {
		return -1, err
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	// Without WAIT_KILLABLE_RECV a signal, such as those with which Go preempts
	// goroutines, interrupts a waiting call, which then starts again.
	fd, err := setFilter(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &prog)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.19
		fd, err = setFilter(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return -1, errors.New("this process already has a seccomp listener: refuse cannot run inside refuse")
	case err != nil:
		return -1, fmt.Errorf("install the seccomp filter: %w", err)
	}
	return fd, nil
}

// setFilter sets no_new_privs only if the kernel requires it.
func setFilter(flags uintptr, prog *unix.SockFprog) (int, error) {
	set := func() (int, error) {
		fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(prog)))
		if errno != 0 {
			return -1, errno
		}
		return int(fd), nil
	}
	fd, err := set()
	if errors.Is(err, unix.EACCES) {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return -1, err
		}
		return set()
	}
	return fd, err
}

// handOver sends the supervisor the number of the listener, and waits until it has taken
// it. No filter may notify of write(2) or read(2): nobody would answer.
func handOver(socket, listener int) error {
	if _, err := unix.Write(socket, binary.NativeEndian.AppendUint32(nil, uint32(listener))); err != nil {
		return fmt.Errorf("hand the listener to the supervisor: %w", err)
	}
	for {
		n, err := unix.Read(socket, make([]byte, 1))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = errors.New("it has exited")
		}
		if err != nil {
			return fmt.Errorf("wait for the supervisor: %w", err)
		}
		return unix.Close(listener)
	}
}
