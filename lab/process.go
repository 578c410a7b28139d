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
	cmd.SysProcAttr.Setsid = true // a process group to kill, and scheduled apart: see GoFirst
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

// Wait waits for the end and gives exec.Cmd.Wait's answer.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process alone; one that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// BeforeTheLoad is the nice value of what goes first.
const BeforeTheLoad = -15

// GoFirst has the process go before others. In a network of machines the load does
// not take the routers' and balancers' processors; here all share one machine's. One
// that has ended already is found out by whoever waits for it.
func (p *Process) GoFirst() error { return GoFirst(p.PID()) }

// GoFirst has the leader of a session and its process group go before others. Where
// the kernel schedules each session as one (sched_autogroup_enabled), nice values
// count within a session only, and the session has one of its own: BFD would
// otherwise take a balancer for dead that another session's compiler keeps waiting.
func GoFirst(pid int) error {
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, BeforeTheLoad); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: set its priority: %w", pid, err)
	}
	return SessionGoesFirst(pid)
}

// SessionGoesFirst has the session that a process leads go before others, as far as
// the kernel schedules sessions. Within it all stays as it is.
func SessionGoesFirst(pid int) error {
	group := fmt.Sprintf("/proc/%d/autogroup", pid)
	err := os.WriteFile(group, fmt.Append(nil, BeforeTheLoad), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: set the priority of its session: %w", pid, err)
	}
	return nil
}

// Kill kills the process and its process group at once.
func (p *Process) Kill() error {
	select {
	case <-p.done: // its number may be another's by now
		return nil
	default:
	}
	if err := unix.Kill(-p.PID(), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Stop asks the process to end (SIGTERM), kills it where it has not within the
// given time, and gives Wait's answer.
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
