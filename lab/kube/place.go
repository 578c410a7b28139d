package kube

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is a thread that starts programs. They inherit the namespaces that it has
// entered, and the kernel kills them when the thread ends, at the latest with this
// process.
type Place struct {
	// Cgroup, if not nil, is the folder of the cgroup (version 2) that programs start in.
	// Set it before the first one.
	Cgroup *os.File

	work chan func()
	done chan struct{}
}

// NewPlace creates a place. enter, if not nil, runs first, on the thread. It may move the
// thread into namespaces, because nothing else ever uses the thread.
func NewPlace(enter func() error) (*Place, error) {
	p := &Place{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
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

// Do runs f on the thread, and nothing else there at the same time.
func (p *Place) Do(f func() error) error {
	result := make(chan error, 1)
	p.work <- func() { result <- f() }
	return <-result
}

// Start starts a command as the leader of its own process group: an interrupt from a
// terminal goes only to us, and we stop the command.
func (p *Place) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	if p.Cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(p.Cgroup.Fd())
	}
	return p.Do(cmd.Start)
}

// Run starts a command, waits for its end, and returns its output.
func (p *Place) Run(cmd *exec.Cmd) (output string, err error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := p.Start(cmd); err != nil {
		return "", err
	}
	err = cmd.Wait()
	return b.String(), err
}

// Close ends the thread, and with it everything that it has started.
func (p *Place) Close() {
	close(p.work)
	<-p.done
}
