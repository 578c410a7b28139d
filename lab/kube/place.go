package kube

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is a thread that starts programs. They have whatever namespaces it has
// entered, and the kernel kills them when it is gone: with this process at the
// latest.
type Place struct {
	// Cgroup, where not nil, is the folder of the cgroup (version 2) that
	// programs start in. Set it before the first one.
	Cgroup *os.File

	work chan func()
	done chan struct{}
}

// NewPlace makes a place. enter, where not nil, is run first, on the thread: it
// may take the thread into namespaces, since the thread is never used for
// anything else.
func NewPlace(enter func() error) (*Place, error) {
	p := &Place{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		defer close(p.done)
		for f := range p.work {
			f()
		}
	}()
	if enter != nil {
		if err := p.Do(enter); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// Do runs f on the thread, and nothing else there meanwhile.
func (p *Place) Do(f func() error) error {
	result := make(chan error, 1)
	p.work <- func() { result <- f() }
	return <-result
}

// Start starts a command as the leader of a process group of its own: an
// interrupt from a terminal is for us, who stop it.
func (p *Place) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	if p.Cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(p.Cgroup.Fd())
	}
	return p.Do(cmd.Start)
}

// Run starts a command, waits for its end, and gives what it has written.
func (p *Place) Run(cmd *exec.Cmd) (output string, err error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := p.Start(cmd); err != nil {
		return "", err
	}
	err = cmd.Wait()
	return b.String(), err
}

// Close ends the thread, and so what it has started.
func (p *Place) Close() {
	close(p.work)
	<-p.done
}
