// Package uml runs a program under another kernel, one with IPVS, if this machine's has
// none. The guest is Debian's user-mode Linux, a kernel that is a process here: it needs
// no virtualization, boots in seconds, sees this machine's files and can change none of
// them. It does not depend on what runs inside.
//
//	Run ── this program again, as pid 1 ── the command
//	 │     mounts, modules, lo             its output and exit status come back
//	 └ linux.uml, in a pid namespace that ends with it
package uml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Defaults of Options.
const (
	DefaultMemory = 1024 // MiB
	DefaultLimit  = 2 * time.Minute
)

// Options configure the guest.
type Options struct {
	// Memory is in MiB; memory that the guest does not touch costs nothing.
	Memory int
	// Limit is how long the guest may take, including its boot.
	Limit time.Duration
	// Dir is the command's working directory; the default is this process's.
	Dir string
	// Env is the command's environment; nil means this process's without TMPDIR, which
	// need not exist inside.
	Env []string
	// Writable are folders of this machine that the command may write to. What it writes
	// elsewhere is lost with the guest.
	Writable []string
	// Tap is a tap device in the calling thread's namespace; in the guest it is vec0.
	Tap string
	// OneCPU keeps the guest on one CPU. Its kernel and its processes take turns, and to
	// wake the other one on an idle CPU takes a virtual machine longer than the turn.
	OneCPU bool
	// Started is called with the PID of the guest's kernel.
	Started func(pid int)
	// Stdout and Stderr receive the command's output; nil means this process's.
	Stdout, Stderr io.Writer
}

// HasIPVS reports whether this kernel has IPVS loaded.
func HasIPVS() bool {
	_, err := os.Stat("/proc/net/ip_vs")
	return err == nil
}

// ErrLimit is wrapped in Run's error if the guest took too long.
var ErrLimit = errors.New("guest: not done in time")

// Run boots a guest, runs a command in it as root and returns its exit status (128 + n if
// signal n killed it). The status is 0 if there is an error. The guest has IPVS with all
// schedulers, what iptables-legacy and ipset need, and no network except lo and Tap. It dies with
// this process; it needs root.
func Run(ctx context.Context, o Options, argv ...string) (status int, err error) {
	o, err = o.complete()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	g := &machine{dir: dir}
	if err := g.prepare(o, argv); err != nil {
		return 0, fmt.Errorf("guest: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("%w: the limit is %v", ErrLimit, o.Limit))
	defer cancel()
	return g.run(ctx, o)
}

func (o Options) complete() (Options, error) {
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Env == nil {
		o.Env = slices.DeleteFunc(sandbox.Environ(), func(e string) bool { return strings.HasPrefix(e, "TMPDIR=") })
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, err
	}
	for i := range o.Writable {
		if o.Writable[i], err = filepath.Abs(o.Writable[i]); err != nil {
			return o, err
		}
	}
	return o, nil
}

// machine is a running guest.
type machine struct {
	dir       string // for its files; removed with it
	kernel    string
	init, job string
	log       tail // output of the kernel
	result    last // final output of its first process
}

func (g *machine) prepare(o Options, argv []string) error {
	root, err := fetched()
	if err != nil {
		return err
	}
	g.kernel = filepath.Join(root, kernelPath)
	if g.init, err = os.Executable(); err != nil {
		return err
	}
	j := job{Argv: argv, Env: o.Env, Dir: o.Dir, Writable: o.Writable}
	if j.Modules, err = modulesFolder(root); err != nil {
		return err
	}
	g.job = filepath.Join(g.dir, "job")
	if err := j.write(g.job); err != nil {
		return err
	}
	return buildShim(g.shim())
}

func (g *machine) shim() string { return filepath.Join(g.dir, "ptrace.so") }

func (g *machine) command(ctx context.Context, o Options) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.kernel,
		fmt.Sprintf("mem=%dM", o.Memory), "uml_dir="+g.dir,
		"root=none", "rootfstype=hostfs", "rootflags=/", "ro",
		"init="+g.init, jobVariable+"="+g.job,
		// Consoles: the kernel's own, and three that transfer bytes out.
		"con=null", "con0=null,fd:1", "con1=null,fd:3", "con2=null,fd:4", "con3=null,fd:5")
	if o.Tap != "" {
		cmd.Args = append(cmd.Args, "vec0:transport=tap,depth=128,ifname="+o.Tap)
	}
	// TMPDIR contains the guest's memory: a file without a name.
	cmd.Env = []string{"LD_PRELOAD=" + g.shim(), "TMPDIR=" + g.dir, "HOME=" + g.dir}
	cmd.Stdout, cmd.Stderr = &g.log, &g.log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// Every process of the guest is also one here: the kernel ends them all with the
		// first.
		Cloneflags: unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true,
	}
	return cmd
}

func (g *machine) run(ctx context.Context, o Options) (int, error) {
	// The death signal is sent when the thread that started the guest ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A guest that has reported its result has nothing left to do.
	running, end := context.WithCancel(ctx)
	defer end()
	g.result.said = end
	cmd := g.command(running, o)
	wait, err := pipes(cmd, o.Stdout, o.Stderr, &g.result)
	if err != nil {
		return 0, err
	}
	err = o.start(cmd)
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if err != nil {
		wait()
		return 0, fmt.Errorf("guest: start %s: %w (is this root?)", g.kernel, err)
	}
	if o.Started != nil {
		o.Started(cmd.Process.Pid)
	}
	err = cmd.Wait()
	wait()
	said, whole := strings.CutSuffix(g.result.String(), "\n")
	if !whole && ctx.Err() != nil {
		return 0, g.explained(context.Cause(ctx))
	}
	if problem, failed := strings.CutPrefix(said, resultFailed); failed {
		return 0, g.explained(fmt.Errorf("guest: %s", strings.TrimSpace(problem)))
	}
	status, malformed := strconv.Atoi(strings.TrimPrefix(said, resultStatus))
	if malformed != nil {
		return 0, g.explained(fmt.Errorf("guest: ended early (%v)", err))
	}
	return status, nil
}

// start starts the guest. It inherits the CPUs of this thread.
func (o Options) start(cmd *exec.Cmd) error {
	if o.OneCPU {
		return cputime.Pinned(cmd.Start)
	}
	return cmd.Start()
}

// explained adds the kernel's last output.
func (g *machine) explained(err error) error {
	return fmt.Errorf("%w; last output of its kernel:\n%s", err, g.log.String())
}

// pipes gives a command a file for each writer, from descriptor 3 on. The returned
// function waits for their ends.
func pipes(cmd *exec.Cmd, writers ...io.Writer) (wait func(), err error) {
	var group sync.WaitGroup
	for _, to := range writers {
		from, file, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
		group.Go(func() {
			defer from.Close()
			io.Copy(to, from)         //nolint:errcheck // who reads no more needs no more
			io.Copy(io.Discard, from) //nolint:errcheck // but the guest is not to wait for it
		})
	}
	return group.Wait, nil
}

// tail keeps the last bytes that were written to it.
type tail struct{ kept []byte }

const tailLength = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > tailLength {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-tailLength:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }

// last is a tail that reports when a line is complete.
type last struct {
	tail
	said func()
}

func (l *last) Write(p []byte) (int, error) {
	if l.tail.Write(p); bytes.HasSuffix(l.kept, []byte("\n")) { //nolint:errcheck // it keeps all
		l.said()
	}
	return len(p), nil
}
