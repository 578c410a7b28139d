package features

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/privilege"
	"github.com/fairlead/fairlead/internal/privilege/held"
	"github.com/fairlead/fairlead/internal/version"
)

// Explain converts the error of a load to one line: what the kernel rejected, its own
// words, and the cause if it is known. what names the attempt: "load the load balancer's
// programs".
func Explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return &explained{text: what + ": " + kernelWords(err) + "; " + advice(err), err: err}
}

// explained prints as one line; the full verifier log is still available through Unwrap.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.err }

// libraryGuess is what the BPF library adds to every EPERM. Since Linux 5.11 that limit
// does not apply.
const libraryGuess = " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)"

// kernelWords returns an error with its errno's name, and the last meaningful line of a
// verifier log.
func kernelWords(err error) string {
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) && len(verifier.Log) > 0 {
		short := *verifier
		short.Log = withoutReport(verifier.Log)
		text := strings.Replace(err.Error(), verifier.Error(), short.Error(), 1)
		return strings.Join(strings.Fields(text), " ") // the library quotes the end of the log
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), libraryGuess, "")), " ")
	var errno unix.Errno
	if errors.As(err, &errno) && !strings.Contains(text, unix.ErrnoName(errno)) {
		return fmt.Sprintf("%s (%s)", text, unix.ErrnoName(errno))
	}
	return text
}

// withoutReport cuts off the report that Linux 7.3 adds to the verifier's log: it
// follows the line with the error, takes many lines and ends with an empty one.
func withoutReport(log []string) []string {
	for i, line := range log {
		if strings.HasPrefix(line, "Verification failed: ") {
			return slices.DeleteFunc(slices.Clone(log[:i]), func(l string) bool { return strings.TrimSpace(l) == "" })
		}
	}
	return log
}

// advice returns the cause of a rejection if it is known, otherwise what to check.
func advice(err error) string {
	if cause := cause(err); cause != "" {
		return "cause: " + cause
	}
	if checks := checks(err); len(checks) > 0 {
		return "the kernel gives no cause; check " + strings.Join(checks, ", ")
	}
	return "the kernel gives no cause; `fairlead doctor` lists what it accepts"
}

// cause returns a cause that is certain, or "".
func cause(err error) string {
	var verifier *ebpf.VerifierError
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if running := version.Release(); older(running, refusal.Since) {
			return fmt.Sprintf("this kernel is Linux %s, and the first to have it is %s", running, refusal.Since)
		}
	}
	switch {
	case errors.As(err, &verifier) && len(verifier.Log) > 0:
		if missing := readProcess().missing(); len(missing) > 0 {
			return noPermission() + ", without which the verifier rejects some programs"
		}
		return "the verifier rejected the program: this kernel lacks something, or limits programs further than Linux 6.1 does"
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return noPermission()
	}
	return ""
}

// older compares two versions by their first two numbers.
func older(running, since string) bool {
	var a, b, x, y int
	if n, _ := fmt.Sscanf(running, "%d.%d", &a, &b); n != 2 {
		return false
	}
	if n, _ := fmt.Sscanf(since, "%d.%d", &x, &y); n != 2 {
		return false
	}
	return a < x || a == x && b < y
}

// noPermission returns what prevents this process from using BPF, if that is certain.
func noPermission() string {
	process := readProcess()
	if missing := process.missing(); len(missing) > 0 {
		return "the process lacks " + strings.ReplaceAll(privilege.Words(missing), ", ", " and ")
	}
	if process.seccomp && rejectsEverything() {
		return "a seccomp filter or an LSM rejects every call of bpf(2), and this process runs under a seccomp filter"
	}
	return ""
}

// rejectsEverything makes a call of bpf(2) that no kernel supports. The kernel itself
// returns EINVAL; EPERM comes from a filter in front of it.
func rejectsEverything() bool {
	_, _, errno := unix.Syscall(unix.SYS_BPF, 1<<30, 0, 0)
	return errno == unix.EPERM || errno == unix.ENOSYS
}

// checks returns facts about this machine that may have caused the rejection.
func checks(err error) []string {
	var list []string
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		if mode := lockdown(); mode != "" && mode != "none" {
			list = append(list, "kernel lockdown (now "+mode+")")
		}
		list = append(list, "the LSM policy ("+modules()+")")
		if readProcess().seccomp {
			list = append(list, "the seccomp filter of this process")
		}
		list = append(list, "how the kernel was built")
	}
	if errors.Is(err, unix.ENOMEM) {
		list = append(list, "the memory limit of the cgroup (memory.max)")
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		if _, missing := os.Stat("/sys/kernel/btf/vmlinux"); missing != nil {
			list = append(list, "the kernel's BTF (/sys/kernel/btf/vmlinux is missing: CONFIG_DEBUG_INFO_BTF)")
		}
	}
	return list
}

// process is the relevant part of /proc/thread-self/status.
type process struct {
	held    privilege.Set // all if unknown
	seccomp bool
}

func readProcess() process {
	p := process{held: held.Read()}
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Seccomp:"); ok {
			p.seccomp = strings.TrimSpace(value) == "2"
		}
	}
	return p
}

// missing returns the capabilities that loading requires and the process lacks.
func (p process) missing() []privilege.Need {
	return privilege.Missing(privilege.For(privilege.Balancer), p.held)
}

// Privileges determine whether this process may use BPF.
type Privileges struct {
	// Held are the effective capabilities; all of them if unknown.
	Held privilege.Set
	// Seccomp is true if the process runs under a system call filter.
	Seccomp bool
	// Lockdown is the kernel's lockdown mode, LSM lists the active security modules; both
	// are empty if unknown.
	Lockdown, LSM string
}

// ReadPrivileges returns the privileges of the calling thread.
func ReadPrivileges() Privileges {
	p := readProcess()
	return Privileges{
		Held: p.held, Seccomp: p.seccomp,
		Lockdown: lockdown(), LSM: activeModules(),
	}
}

// lockdown returns "none", "integrity", "confidentiality", or "" if unknown.
func lockdown() string {
	text, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}

// modules lists the active LSMs, or says that they are unknown.
func modules() string {
	if list := activeModules(); list != "" {
		return list
	}
	return "securityfs is not mounted here, so the active ones are unknown"
}

// activeModules lists the active LSMs, or "" if they are unknown.
func activeModules() string {
	text, _ := os.ReadFile("/sys/kernel/security/lsm")
	return strings.TrimSpace(string(text))
}
