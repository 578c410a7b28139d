// Package benchtest is what the tests of experiments share.
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
	"github.com/fairlead/fairlead/lab/testkit"
)

// Ground is a folder that an experiment's sandbox, which has another /run, sees too.
const Ground = "/mnt"

// Build makes the folder until the test ends, with fairlead and fairlead-lab in it,
// and returns the path of the latter.
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

// Run runs `fairlead-lab bench` and gives what it reports. Goals may be missed: what takes
// how long here nobody judges.
func Run(t *testing.T, binary, out string, args ...string) (report bench.Report) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, slices.Concat([]string{"bench"}, args, []string{"-o", "json", "--out", out})...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !strings.Contains(stderr.String(), "goals were missed") {
		t.Errorf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("stdout is no report: %v: %q: %s", err, stdout.String(), stderr.String())
	}
	return report
}

// Nonsense sees that options as they are by default make sense, and that those which
// are spoilt do not, in words that name the flag.
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
