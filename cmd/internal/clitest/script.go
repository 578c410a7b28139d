package clitest

import (
	"errors"
	"os/exec"

	"github.com/rogpeppe/go-internal/testscript"
)

// Exits returns a command for test scripts that runs a command line and requires an exit
// code. Its output is available to stdout and stderr.
func Exits(want int) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		err := ts.Exec(args[0], args[1:]...)
		var exit *exec.ExitError
		if neg || !errors.As(err, &exit) || exit.ExitCode() != want {
			ts.Fatalf("%v: want exit code %d", err, want)
		}
	}
}
