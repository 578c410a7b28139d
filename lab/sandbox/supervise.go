package sandbox

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that are forwarded.
var forwarded = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

// lastSignal is the number of signals after which the supervisor kills the sandbox.
const lastSignal = 3

// File descriptors that init inherits, in addition to the standard three.
const (
	lifelineFD = 3 // reads EOF when the supervisor is gone
	readyFD    = 4 // closed by init when it can take signals
)

// supervise starts init and waits for its end.
func supervise(o Options) (int, error) {
	// The death signal is sent when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)

	lifeline, alive, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer alive.Close()
	isReady, ready, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd := initCommand(o)
	cmd.ExtraFiles = []*os.File{lifeline, ready}
	if o.Outside != nil {
		outside, err := connect(o.Outside)
		if err != nil {
			return 0, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, outside)
	}
	err = cmd.Start()
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if errors.Is(err, unix.EPERM) {
		return 0, errors.Join(ErrNotPermitted, err)
	}
	if err != nil {
		return 0, err
	}
	go handOn(cmd.Process, signals, isReady)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exitCode(unix.WaitStatus(exit.Sys().(syscall.WaitStatus))), nil
	}
	return 0, err
}

func initCommand(o Options) *exec.Cmd {
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	if o.Net {
		flags |= unix.CLONE_NEWNET
	}
	return &exec.Cmd{
		Path:   "/proc/self/exe",
		Args:   os.Args,
		Env:    environment(o.Name + "/init"),
		Stdin:  standardInput(),
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: flags,
			Pdeathsig:  unix.SIGKILL,
			// Not in the terminal's foreground group: a Ctrl-C only reaches the
			// supervisor, which forwards it, so it never arrives twice.
			Setpgid: true,
		},
	}
}

// handOn forwards signals to init. A signal that arrives before init can handle it would
// be lost (PID 1 has no default actions): nothing runs yet then, so it ends init
// immediately.
func handOn(init *os.Process, signals <-chan os.Signal, isReady io.Reader) {
	ready := make(chan struct{})
	go func() {
		io.Copy(io.Discard, isReady)
		close(ready)
	}()
	for n := 1; ; n++ {
		s := <-signals
		select {
		case <-ready:
			if n < lastSignal {
				init.Signal(s)
				continue
			}
		default:
		}
		init.Kill()
	}
}

// standardInput does not pass on a terminal: reading it from outside the foreground group
// would stop the program.
func standardInput() io.Reader {
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err == nil {
		return nil
	}
	return os.Stdin
}

// environment is this process's with another marker.
func environment(stage string) []string { return append(Environ(), marker+"="+stage) }

// Environ is this process's environment without the sandbox's variables, for processes
// outside every sandbox of this machine.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, marker) })
}
