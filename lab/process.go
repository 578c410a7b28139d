package lab

import (
	"errors"
	"fmt"
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
	cmd.SysProcAttr.Setpgid = true
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

// beforeTheLoad is the nice value of what goes first.
const beforeTheLoad = -15

// GoFirst has the process go before others. In a network of machines the load does
// not take the routers' and balancers' processors; here all share one machine's. One
// that has ended already is found out by whoever waits for it.
func (p *Process) GoFirst() error {
	if err := unix.Setpriority(unix.PRIO_PGRP, p.PID(), beforeTheLoad); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: set its priority: %w", p.PID(), err)
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
