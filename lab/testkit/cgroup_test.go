package testkit_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit"
)

// TestKilledInItsCgroup is the process that TestCgroups kills.
func TestKilledInItsCgroup(t *testing.T) {
	if os.Getenv("TESTKIT_KILLED") == "" {
		t.Skip("is run by TestCgroups")
	}
	fmt.Println("\nat " + testkit.EnterCgroup(t))
	select {}
}

// TestCgroups checks that a killed test's cgroup is removed when the next one is created,
// and that the cgroup of a running test stays.
func TestCgroups(t *testing.T) {
	own := testkit.EnterCgroup(t)
	if text, err := os.ReadFile("/proc/self/cgroup"); err != nil || !strings.Contains(string(text), "::/"+filepath.Base(own)+"\n") {
		t.Errorf("this process is in %q (%v), want %s", text, err, own)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilledInItsCgroup$")
	cmd.Env = append(os.Environ(), "TESTKIT_KILLED=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := ""
	for in := bufio.NewScanner(out); killed == "" && in.Scan(); {
		if at, ok := strings.CutPrefix(in.Text(), "at "); ok {
			killed = filepath.Join(filepath.Dir(own), filepath.Base(at))
			defer unix.Unmount(filepath.Dir(at), unix.MNT_DETACH)
		}
	}
	root, err := os.Open(filepath.Dir(own))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unix.Flock(int(root.Fd()), unix.LOCK_EX); err != nil { // otherwise another package's test may remove it
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	if _, err := os.Stat(killed); killed == "" || err != nil {
		t.Fatalf("the killed process left %q: %v", killed, err)
	}
	if err := unix.Flock(int(root.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	other := testkit.Cgroup(t)
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("state of a killed test remains: %v", err)
	}
	for _, living := range []string{own, other} {
		if _, err := os.Stat(living); err != nil {
			t.Error(err)
		}
	}
}
