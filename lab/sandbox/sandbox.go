// Package sandbox runs a program where whatever it makes dies with it: it
// re-executes the program in new mount, process and (where asked) network
// namespaces, so that the kernel itself takes namespaces, links, mounts,
// pinned maps and processes away again, however the program ends. It knows
// nothing about what runs inside; topologies are lab's business.
//
// Three processes take part, all of the same binary:
//
//	supervisor   what the user started: hands signals on and gives back the exit code
//	  └─ init    pid 1 inside: mounts, reaps orphans, hands signals on
//	       └─ program   where Enter returns
//
// The program is not pid 1 itself, so that reaping orphans can never take away
// a child which the program's own exec.Cmd waits for.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// WorkDir is a folder of the sandbox's own that vanishes with it.
const WorkDir = "/run/fairlead"

// Options say what the sandbox is made of.
type Options struct {
	// Name tells sandboxes apart that are entered inside each other: a program
	// that finds itself in a sandbox of this name is inside already. Empty for
	// "fairlead".
	Name string
	// Net gives the sandbox a network namespace of its own, empty but for
	// lo, which is up.
	Net bool
}

// ErrNotPermitted is what Enter answers, wrapped, to a caller that may not make
// namespaces.
var ErrNotPermitted = errors.New("needs root (CAP_SYS_ADMIN) to make namespaces: run it with sudo")

// marker is the environment variable that tells a re-executed binary which of
// the three processes it is to be.
const marker = "FAIRLEAD_SANDBOX"

// The main goroutine stays on the main thread, so that no goroutine which
// visits another network namespace can soil the thread that /proc/self shows.
func init() {
	if os.Getenv(marker) != "" {
		runtime.LockOSThread()
	}
}

// Enter returns, with nil, in a copy of this program that runs inside the
// sandbox; the copy is started anew with the same arguments, so call Enter
// before anything that should happen only once. In the process that was
// started first Enter does not return: it ends with the copy's exit code
// (128 + n if signal n killed it). It returns an error where no sandbox can
// be made.
//
// SIGINT, SIGTERM, SIGHUP and SIGQUIT are handed to the program, exactly once
// each also where a terminal sends them to a whole process group; the third
// one ends everything at once.
//
// Inside, /run is empty but for WorkDir, netns.Dir and /run/lock, /sys/fs/bpf is
// an empty bpffs, and the rest of the file system is the real one. A terminal
// as standard input reads as empty.
func Enter(o Options) error {
	if o.Name == "" {
		o.Name = "fairlead"
	}
	switch os.Getenv(marker) {
	case o.Name:
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

// outerPID is the environment variable with init's pid as it is outside.
const outerPID = "FAIRLEAD_SANDBOX_PID"

// OuterPID is the pid by which the sandbox is known outside: nsenter -t takes
// it. Empty outside of one.
func OuterPID() string { return os.Getenv(outerPID) }

// Inside tells whether this process runs in the sandbox of that name.
func Inside(name string) bool { return os.Getenv(marker) == name }

// exitCode is what a shell would say of a process that ended so.
func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
