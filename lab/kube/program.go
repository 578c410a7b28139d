package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Program is a process that can be stopped and started again. Its methods are safe for
// concurrent use, except that Start and Stop must not run at the same time.
type Program struct {
	// Place starts it, Argv is the program's path and arguments, Log its log file.
	Place *Place
	Argv  []string
	Log   string
	// Ready is called repeatedly after a start, until it returns nil.
	Ready func(context.Context) error

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended; nil if it was never started
}

// Name is the name of the program's file.
func (p *Program) Name() string { return filepath.Base(p.Argv[0]) }

// PID returns the process ID, or an error if the program does not run.
func (p *Program) PID() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0, fmt.Errorf("%s does not run", p.Name())
	}
	return p.cmd.Process.Pid, nil
}

func (p *Program) running() bool {
	if p.ended == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Start starts the program and waits until it is ready. It appends to the same log.
func (p *Program) Start(ctx context.Context) error {
	if pid, err := p.PID(); err == nil {
		return fmt.Errorf("%s is already running, as process %d", p.Name(), pid)
	}
	if err := p.launch(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name(), err)
	}
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := p.Ready(once)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it was ready (%s), see %s:\n%s", p.Name(), p.cmd.ProcessState, p.Log, p.LastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w: %w), see %s:\n%s", p.Name(), ctx.Err(), err, p.Log, p.LastWords())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Program) launch() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.Place.Start(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.ended = cmd, ended
	return nil
}

// Stop kills the program and waits for its end. It is not an error if the program does
// not run. Its clients see their connections reset.
func (p *Program) Stop() error {
	if p == nil || p.signal(unix.SIGKILL) != nil {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s does not exit after SIGKILL", p.Name())
	}
}

// Pause stops the program (SIGSTOP) and returns when it has stopped: connections stay
// open, and nothing answers.
func (p *Program) Pause() error {
	pid, err := p.PID()
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// Resume continues a paused program.
func (p *Program) Resume() error { return p.signal(unix.SIGCONT) }

// Slow alternately runs and stops the program for the given durations, until the returned
// function is called.
func (p *Program) Slow(run, stand time.Duration) (stop func() error) {
	quit, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-quit:
				done <- nil
				return
			case <-time.After(run):
			}
			err := p.Pause()
			time.Sleep(stand)
			if err = errors.Join(err, p.Resume()); err != nil {
				<-quit
				done <- err
				return
			}
		}
	}()
	return sync.OnceValue(func() error { close(quit); return <-done })
}

func (p *Program) signal(s unix.Signal) error {
	pid, err := p.PID()
	if err != nil {
		return err
	}
	return unix.Kill(pid, s)
}

// LastWords returns the last lines of the log.
func (p *Program) LastWords() []byte {
	const most = 3000
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return []byte(err.Error())
	}
	if len(text) > most {
		_, text, _ = bytes.Cut(text[len(text)-most:], []byte("\n"))
	}
	return text
}
