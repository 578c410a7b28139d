package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// Process is a command that runs in a host.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func start(ns *netns.NS, cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true // a process group to kill, and scheduled separately: see GoFirst
	if err := ns.Do(cmd.Start); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output is copied.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end and returns the result of exec.Cmd.Wait.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal only to the process itself; it is not an error if it has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// BeforeTheLoad is the nice value of processes that take precedence.
const BeforeTheLoad = -15

// GoFirst gives the process precedence over others. In a network of real machines the
// load does not use the CPUs of routers and load balancers; here all share one machine. A
// process that has already ended is not an error: its waiter notices.
func (p *Process) GoFirst() error { return GoFirst(p.PID()) }

// GoFirst gives precedence to the leader of a session and its process group. If the
// kernel schedules each session as one unit (sched_autogroup_enabled), nice values only
// count within a session, and the session has its own: otherwise BFD would consider a
// load balancer dead that is delayed by a compiler in another session.
func GoFirst(pid int) error {
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, BeforeTheLoad); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: set its priority: %w", pid, err)
	}
	return SessionGoesFirst(pid)
}

// SessionGoesFirst gives precedence to the session that a process leads, if the kernel
// schedules sessions. Priorities within the session are unchanged.
func SessionGoesFirst(pid int) error {
	group := fmt.Sprintf("/proc/%d/autogroup", pid)
	err := os.WriteFile(group, fmt.Append(nil, BeforeTheLoad), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: set the priority of its session: %w", pid, err)
	}
	return nil
}

// Kill kills the process and its process group.
func (p *Process) Kill() error {
	select {
	case <-p.done: // its process ID may have been reused
		return nil
	default:
	}
	if err := unix.Kill(-p.PID(), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Stop sends SIGTERM to the process, kills it if it has not ended within the given time,
// and returns the result of Wait.
func (p *Process) Stop(within time.Duration) error {
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(within):
		if err := p.Kill(); err != nil {
			return err
		}
	}
	return p.Wait()
}
