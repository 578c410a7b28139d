package uml

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// job is what the guest's first process has to do.
type job struct {
	Argv, Env []string
	Dir       string
	Modules   string // the kernel's modules, with modules.dep
	Writable  []string
}

func (j job) write(path string) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// jobVariable is the environment variable with the job's file: the kernel puts unknown
// parameters of its command line into the environment of the first process.
const jobVariable = "FAIRLEAD_GUEST"

// Final output of the first process on its console.
const (
	resultStatus = "status "
	resultFailed = "failed "
)

// As a guest's first process this program never reaches main.
func init() {
	path := os.Getenv(jobVariable)
	if os.Getpid() != 1 || path == "" {
		return
	}
	runtime.LockOSThread()
	if err := first(path); err != nil {
		// Without its own console: on the kernel's.
		fmt.Fprintln(os.Stderr, "guest:", err)
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) //nolint:errcheck // the kernel panics where pid 1 ends
	}
	// The reader of the result ends the guest: user-mode Linux has been seen to hang
	// after "System halted".
	for {
		unix.Pause() //nolint:errcheck // it ends by a signal
	}
}

// first does the work of PID 1.
func first(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	if err := j.enter(); err != nil {
		return err
	}
	result, err := console(3)
	if err != nil {
		return err
	}
	said := resultFailed
	if status, err := j.run(); err != nil {
		said += strings.ReplaceAll(err.Error(), "\n", "; ")
	} else {
		said = fmt.Sprint(resultStatus, status)
	}
	unix.Sync() // the guest ends now
	_, err = fmt.Fprintln(result, said)
	return errors.Join(err, drain(result))
}

// Where the new root is assembled: any folder that every machine has will do.
const staging = "/tmp"

// enter creates a root from this machine's files with an upper layer that receives all
// writes, and makes it the only one.
func (j job) enter() error {
	if err := j.load("overlay"); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", staging, "tmpfs", 0, "size=75%"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	root := filepath.Join(staging, "root")
	for _, dir := range []string{root, staging + "/upper", staging + "/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+staging+"/upper,workdir="+staging+"/work"); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := j.mount(); err != nil {
		return err
	}
	// The old root is stacked on the new one, and unmounted.
	if err := errors.Join(unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	return nil
}

// mount mounts the kernel's own file systems below the working directory.
func (j job) mount() error {
	modules := filepath.Join("lib/modules", filepath.Base(j.Modules))
	type mount struct {
		kind, target, data string
		flags              uintptr
	}
	mounts := []mount{
		{"proc", "proc", "", 0},
		{"sysfs", "sys", "", 0},
		{"bpf", "sys/fs/bpf", "mode=0700", 0},
		{"cgroup2", "sys/fs/cgroup", "", 0},
		{"devtmpfs", "dev", "", 0},
		{"devpts", "dev/pts", "", 0},
		{"tmpfs", "dev/shm", "", 0},
		{"tmpfs", "run", "mode=0755", 0},
		{"hostfs", modules, j.Modules, unix.MS_RDONLY}, // for modprobe, if it exists
	}
	for _, w := range j.Writable {
		mounts = append(mounts, mount{"hostfs", "." + w, w, 0})
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	for _, dir := range []string{netns.Dir, "/run/lock"} {
		if err := os.Mkdir("."+dir, 0o755); err != nil {
			return err
		}
	}
	return legacyTables()
}

// legacyTables makes iptables and related commands, below the working directory, those
// that this kernel supports: its nf_tables has no IP tables. Debian's alternatives are a
// folder of links; on other systems nothing needs to change.
func legacyTables() error {
	links, err := filepath.Glob("etc/alternatives/ip*tables*")
	for _, link := range links {
		target, readErr := os.Readlink(link)
		legacy := strings.Replace(target, "tables-nft", "tables-legacy", 1)
		if err = errors.Join(err, readErr); legacy != target {
			err = errors.Join(err, os.Remove(link), os.Symlink(legacy, link))
		}
	}
	return err
}

// load inserts modules and what they need.
func (j job) load(names ...string) error {
	dep, err := os.ReadFile(filepath.Join(j.Modules, "modules.dep"))
	if err != nil {
		return err
	}
	for _, file := range inOrder(string(dep), names) {
		module, err := os.Open(filepath.Join(j.Modules, file))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(module.Fd()), "", 0)
		module.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return nil
}

// run runs the command and returns its exit status.
func (j job) run() (int, error) {
	err := errors.Join(
		j.load(wanted...),
		netns.WriteSysctl("net.core.fb_tunnels_only_for_init_net", "1"), // a new namespace has only lo
		netns.LoopbackUp(), // IPVS accepts no backend before
	)
	if err != nil {
		return 0, err
	}
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	stdout, err := console(1)
	if err != nil {
		return 0, err
	}
	stderr, err := console(2)
	if err != nil {
		return 0, err
	}
	os.Clearenv()
	for _, e := range j.Env {
		if name, value, ok := strings.Cut(e, "="); ok {
			os.Setenv(name, value) //nolint:errcheck // for LookPath alone
		}
	}
	path, err := exec.LookPath(j.Argv[0])
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(path, j.Argv, &syscall.ProcAttr{
		Dir: j.Dir, Env: j.Env,
		Files: []uintptr{stdin.Fd(), stdout.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	status := sandbox.Reap(pid)
	return status, errors.Join(drain(stdout), drain(stderr))
}

// console opens the n-th console in raw mode: newlines are not translated.
func console(n int) (*os.File, error) {
	f, err := os.OpenFile(fmt.Sprintf("/dev/tty%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	settings, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	settings.Oflag &^= unix.OPOST
	settings.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.TOSTOP
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return f, nil
}

// drain waits until everything written to a console has been transmitted (tcdrain(3)).
func drain(f *os.File) error {
	if err := unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1); err != nil {
		return fmt.Errorf("%s: drain: %w", f.Name(), err)
	}
	return nil
}
