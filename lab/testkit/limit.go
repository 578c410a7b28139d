package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/privilege"
)

// limitVariable makes a test binary drop capabilities and execute another program.
const limitVariable = "FAIRLEAD_TEST_CAPABILITIES"

// Limit makes a command run with only these capabilities, and without a way to gain more,
// as in a container with allowPrivilegeEscalation: false.
func Limit(cmd *exec.Cmd, to privilege.Set) {
	cmd.Args = append([]string{"limited", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/proc/self/exe"
	cmd.Env = append(cmd.Environ(), fmt.Sprintf("%s=%x", limitVariable, uint64(to)))
}

// init runs in the child before any test's own Main.
func init() {
	if text := os.Getenv(limitVariable); text != "" {
		fmt.Fprintln(os.Stderr, becomeLimited(text))
		os.Exit(1)
	}
}

// becomeLimited drops the capabilities and executes the command. It returns only with an
// error.
func becomeLimited(text string) error {
	keep, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	for c := range uint(64) {
		if keep&(1<<c) != 0 {
			continue
		}
		// The bounding set limits what root has after execve(2) (capabilities(7)).
		// EINVAL: this kernel does not know the capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := os.Unsetenv(limitVariable); err != nil {
		return err
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}
