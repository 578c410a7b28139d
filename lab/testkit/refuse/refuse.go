// Package refuse runs a command on a kernel that rejects chosen features: a map
// type, a program type, a helper, a netlink message. Tests use it to check what
// the product does where those are missing. The product must not import it.
//
// A seccomp filter with user notification (SECCOMP_RET_USER_NOTIF) stops the
// system calls that the rules are about, in the command and all its children. A
// supervisor reads their arguments and either lets the kernel continue or
// answers with an errno:
//
//	refuse            supervisor: reads arguments, answers, forwards signals
//	  └─ refuse       installs the filter on its thread, then becomes
//	     └─ command   unmodified, as are its children
//
// The kernel never sees a rejected call: a rejected program is not verified and
// leaves no verifier log. A rejected netlink message fails when it is sent,
// where a kernel would send an error back.
//
// Limits:
//   - A process can have one such filter: refuse does not run inside refuse.
//   - When the command ends, refuse ends. Processes that the command leaves
//     behind get ENOSYS for the system calls that the rules are about.
//   - Netlink is seen through sendto(2) with a sockaddr_nl and sendmsg(2), not
//     through send(2), write(2), sendmmsg(2) or io_uring.
//   - A system call that the filter notifies of takes some 10 to 20 µs more,
//     rejected or not. Rules for netlink slow down every sendmsg(2).
//   - A guest under user-mode Linux has a kernel of its own: to reject features
//     of that one, run refuse inside.
package refuse

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Exit codes if the command did not run, like those of env(1) and timeout(1).
const (
	exitFailed     = 125
	exitNotRunning = 126
	exitNotFound   = 127
)

// A program started under one of these names plays that role. A program's name survives
// any change of the environment.
const (
	supervisorName = "fairlead-refuse"
	childName      = "fairlead-refuse-child"
)

// Command returns a command that runs name under rules, separated by spaces.
// It starts this program again, which must call Init first:
//
//	func TestMain(m *testing.M) { refuse.Init(); testkit.Main(m) }
//	refuse.Command("map:ringbuf=EPERM prog:xdp=EINVAL", "/proc/self/exe", "arg")
func Command(rules, name string, args ...string) *exec.Cmd {
	argv := slices.Concat([]string{supervisorName}, strings.Fields(rules), []string{"--", name}, args)
	return &exec.Cmd{Path: "/proc/self/exe", Args: argv}
}

// Init does not return in processes that Command started. Call it before
// anything else.
func Init() {
	switch os.Args[0] {
	case supervisorName:
		os.Exit(Main(os.Args[1:]))
	case childName:
		os.Exit(runChild(os.Args[1:]))
	}
}

const usage = `usage: refuse [-v] KIND:NAME=ERRNO... [--] COMMAND ARGS...

Run COMMAND on a kernel that rejects features with the errno. -v reports every
rejected system call, and at the end how many each rule rejected. With go test,
give the absolute path of refuse (make refuse builds it):

  go test -exec "$PWD/bin/refuse map:ringbuf=EPERM" ./dataplane/xdp

`

// Main is the command line of refuse, without the program's name. It returns
// the exit code: that of the command, or 128+n if signal n killed it.
func Main(args []string) int {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(os.Stderr, usage, knownKinds())
		return exitFailed
	}
	var verbose io.Writer = io.Discard
	if args[0] == "-v" {
		verbose, args = os.Stderr, args[1:]
	}
	rules, command, err := Parse(args)
	if err != nil {
		return fail(exitFailed, err)
	}
	path, err := exec.LookPath(command[0])
	if errors.Is(err, os.ErrPermission) {
		return fail(exitNotRunning, err)
	}
	if err != nil {
		return fail(exitNotFound, err)
	}
	code, err := supervise(rules, path, command, verbose)
	if err != nil {
		return fail(exitFailed, err)
	}
	return code
}

func fail(code int, err error) int {
	fmt.Fprintf(os.Stderr, "refuse: %v\n", err)
	return code
}
