// Package sandbox runs a program so that everything it creates is removed when it ends:
// it re-executes the program in new mount, process and (optionally) network namespaces,
// so that the kernel itself removes namespaces, links, mounts, pinned maps and processes,
// however the program ends. It does not depend on what runs inside; topologies belong in
// lab.
//
// Three processes take part, all of the same binary:
//
//	supervisor   what the user started: forwards signals and returns the exit code
//	  └─ init    pid 1 inside: mounts, reaps orphans, forwards signals
//	       └─ program   where Enter returns
//
// The program is not PID 1 itself, so that reaping orphans can never take away a child
// that the program's own exec.Cmd waits for.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// WorkDir is a folder that belongs to the sandbox and is removed with it.
const WorkDir = "/run/fairlead"

// Options configure the sandbox.
type Options struct {
	// Name distinguishes nested sandboxes: a program that finds itself in a sandbox with
	// this name is already inside. The default is "fairlead".
	Name string
	// Net gives the sandbox its own network namespace, empty except for lo, which is up.
	Net bool
	// Outside answers Ask. It runs in the supervisor, which sees all processes of the
	// machine and its kernel threads.
	Outside func(request string) (answer string)
}

// ErrNotPermitted is wrapped in Enter's error if the caller may not create namespaces.
var ErrNotPermitted = errors.New("needs root (CAP_SYS_ADMIN) to make namespaces: run it with sudo")

// marker is the environment variable that selects which of the three processes a
// re-executed binary is.
const marker = "FAIRLEAD_SANDBOX"

// The main goroutine stays on the main thread, so that no goroutine that visits another
// network namespace can affect the thread that /proc/self shows.
func init() {
	if os.Getenv(marker) != "" {
		runtime.LockOSThread()
	}
}

// Enter returns nil in a copy of this program that runs inside the sandbox. The copy
// starts from the beginning with the same arguments, so call Enter before anything that
// should happen only once. In the original process Enter does not return: that process
// ends with the copy's exit code (128 + n if signal n killed it). It returns an error if
// no sandbox can be created.
//
// SIGINT, SIGTERM, SIGHUP and SIGQUIT are forwarded to the program exactly once each,
// even if a terminal sends them to a whole process group; the third one ends everything
// immediately.
//
// Inside, /run is empty except for WorkDir, netns.Dir and /run/lock, /sys/fs/bpf is an
// empty bpffs, and the rest of the file system is the real one. A terminal as standard
// input reads as empty.
func Enter(o Options) error {
	if o.Name == "" {
		o.Name = "fairlead"
	}
	switch os.Getenv(marker) {
	case o.Name:
		if o.Outside != nil {
			inherit()
		}
		return nil
	case o.Name + "/init":
		os.Exit(runInit(o))
	}
	code, err := supervise(o)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", o.Name, err)
	}
	os.Exit(code)
	return nil
}

// outerPID is the environment variable with init's PID outside.
const outerPID = "FAIRLEAD_SANDBOX_PID"

// OuterPID is the PID of the sandbox outside, for nsenter -t. It is empty outside a
// sandbox.
func OuterPID() string { return os.Getenv(outerPID) }

// Inside reports whether this process runs in the sandbox with that name.
func Inside(name string) bool { return os.Getenv(marker) == name }

// exitCode is the exit code that a shell would report for a process.
func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
