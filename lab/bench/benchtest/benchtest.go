// Package benchtest contains helpers shared by the tests of the experiments.
package benchtest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Ground is a folder that is also visible in an experiment's sandbox, which has its own
// /run.
const Ground = "/mnt"

// Build creates the folder for the duration of the test, builds fairlead and fairlead-lab
// into it, and returns the path of fairlead-lab.
func Build(t *testing.T) (binary string) {
	t.Helper()
	if err := unix.Mount("tmpfs", Ground, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(Ground, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := testkit.Build(filepath.Join(Ground, "fairlead")); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(Ground, "fairlead-lab")
	if err := testkit.BuildLab(binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// Run runs `fairlead-lab bench` and returns its report. Missed goals are not an error,
// because timings on a test machine mean nothing.
func Run(t *testing.T, binary, out string, args ...string) (report bench.Report) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, slices.Concat([]string{"bench"}, args, []string{"-o", "json", "--out", out})...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	sandbox.PassOn(cmd)
	if err := cmd.Run(); err != nil && !strings.Contains(stderr.String(), "goals missed: ") {
		t.Errorf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("stdout is not a report: %v: %q: %s", err, stdout.String(), stderr.String())
	}
	return report
}

// Nonsense checks that the default options are valid, and that each spoilt variant is
// rejected with an error that names the flag.
func Nonsense[O interface{ Validate() error }](t *testing.T, defaults func() O, spoilt map[string]func(*O)) {
	t.Helper()
	if err := defaults().Validate(); err != nil {
		t.Error(err)
	}
	for flag, spoil := range spoilt {
		o := defaults()
		spoil(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
