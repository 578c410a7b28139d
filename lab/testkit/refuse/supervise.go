package refuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// supervise runs the command and answers its notifications until it ends. It
// returns the exit code.
func supervise(rules []Rule, path string, command []string, verbose io.Writer) (int, error) {
	runtime.LockOSThread() // the child dies with this thread (Pdeathsig)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	cmd, socket, err := start(rules, path, command)
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have exited
		}
	}()
	listener, err := takeListener(socket, cmd.Process.Pid)
	if errors.Is(err, io.EOF) { // the child has reported why
		return wait(cmd)
	}
	if err != nil {
		_ = cmd.Process.Kill() // it waits for this process
		_ = cmd.Wait()
		return 0, err
	}
	j := newJudge(rules, verbose)
	go j.serve(listener)
	code, err := wait(cmd)
	j.summarize()
	return code, err
}

// start starts this program as the child, and returns a socket to it.
func start(rules []Rule, path string, command []string) (*exec.Cmd, *os.File, error) {
	// Not in ExtraFiles, where it would take the place of a file that the command should
	// inherit.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(pair[0])
	defer unix.Close(pair[1])
	argv := []string{childName, strconv.Itoa(pair[1]), path}
	for _, r := range rules {
		argv = append(argv, r.String())
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: slices.Concat(argv, []string{"--"}, command),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		// A separate process group: signals from a terminal or timeout(1) to this group
		// arrive only once.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Foreground: hasTerminal(), Pdeathsig: unix.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		unix.Close(pair[0])
		return nil, nil, err
	}
	return cmd, os.NewFile(uintptr(pair[0]), "child"), nil
}

// hasTerminal reports whether the command may take over a terminal: standard
// input is one, and this process is in its foreground.
func hasTerminal() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// takeListener duplicates the file descriptor that the child has named. Passing it would
// need a sendmsg(2), of which the filter may notify.
func takeListener(socket *os.File, pid int) (int, error) {
	defer socket.Close()
	number := make([]byte, 4)
	if _, err := io.ReadFull(socket, number); err != nil {
		return -1, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("take the seccomp listener: %w", err)
	}
	defer unix.Close(pidfd)
	listener, err := unix.PidfdGetfd(pidfd, int(binary.NativeEndian.Uint32(number)), 0)
	if err != nil {
		return -1, fmt.Errorf("take the seccomp listener: %w", err)
	}
	_, err = socket.Write([]byte{0})
	return listener, err
}

// wait returns the exit code like a shell.
func wait(cmd *exec.Cmd) (int, error) {
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return 0, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}
