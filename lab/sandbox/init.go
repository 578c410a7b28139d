package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
)

// exitSetup is init's exit code if the sandbox could not be created.
const exitSetup = 1

// runInit is PID 1: it prepares the sandbox, starts the program in it, and returns the
// program's exit code. When it returns, the kernel kills what still runs inside.
func runInit(o Options) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	unix.CloseOnExec(lifelineFD)
	unix.Close(readyFD)
	go func() {
		io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline"))
		os.Exit(128 + int(unix.SIGKILL))
	}()
	outerSelf, _ := os.Readlink("/proc/self") // still the outer /proc: our PID there
	if err := prepare(o); err != nil {
		fmt.Fprintf(os.Stderr, "sandbox %s: %v\n", o.Name, err)
		return exitSetup
	}
	files := []uintptr{0, 1, 2}
	if o.Outside != nil {
		unix.CloseOnExec(initOutsideFD)
		files = append(files, initOutsideFD)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(environment(o.Name), outerPID+"="+outerSelf),
		Files: files,
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "sandbox %s: start the program: %v\n", o.Name, err)
		return exitSetup
	}
	go func() {
		for s := range signals {
			unix.Kill(pid, s.(unix.Signal))
		}
	}()
	return Reap(pid)
}

// Reap is the main loop of a PID 1: it waits for every child, its own and adopted ones,
// until the program ends, and returns its exit code.
func Reap(program int) int {
	for {
		var ws unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &ws, 0, nil); {
		case err == unix.EINTR:
		case err != nil:
			fmt.Fprintf(os.Stderr, "sandbox: wait: %v\n", err)
			return exitSetup
		case pid == program && (ws.Exited() || ws.Signaled()):
			return exitCode(ws)
		}
	}
}

// uncover unmounts, only in this namespace, what the machine has mounted below a folder
// that is about to be covered: it would still be listed, and programs that read the list,
// such as container runtimes, would consider it present.
func uncover(folder string) {
	table, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(table), "\n")
	for _, line := range slices.Backward(lines) { // mounts on top of others first
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], folder+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH) // one that stays only affects the list
		}
	}
}

// prepare mounts the sandbox's own file systems. All of /run is replaced: netns.Dir may
// not exist there, and creating it would leave it behind.
func prepare(o Options) error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	mounts := []struct {
		source, target, kind string
		flags                uintptr
		data                 string
		skip                 bool
	}{
		{"proc", "/proc", "proc", safe, "", false},
		{"sysfs", "/sys", "sysfs", safe, "", !o.Net}, // shows the devices of the network namespace that mounts it
		{"bpf", "/sys/fs/bpf", "bpf", safe, "mode=0700", false},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755", false},
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make all mounts private: %w", err)
	}
	// What the machine has mounted there would be hidden but still listed: container
	// runtimes may consider it present.
	for unix.Unmount(netns.Dir, unix.MNT_DETACH) == nil {
	}
	for _, m := range mounts {
		if m.skip {
			continue
		}
		if m.target == "/run" {
			uncover(m.target)
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	for _, dir := range []string{netns.Dir, WorkDir, "/run/lock"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if o.Net {
		return netns.LoopbackUp()
	}
	return nil
}
