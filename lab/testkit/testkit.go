// Package testkit is what tests of parts that touch the kernel share: a
// sandbox around a whole package's tests, network namespaces, waiting with a
// deadline. The product itself must not import it.
package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Main runs a package's tests inside a sandbox, so that even a killed test
// leaves nothing behind:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// The tests have an own, empty network namespace with lo up, a bpffs on
// /sys/fs/bpf, an empty /run, and TMPDIR within it. Flags, output, exit code
// and coverage are those of a plain `go test`.
//
// A fuzzer, which has pipes that no sandbox passes on, runs without.
func Main(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz=") || a == "-test.fuzzworker" }) {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := enter(sandbox.Options{Name: "test", Net: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// enter goes into a sandbox, and sees that temporary files go with it.
func enter(o sandbox.Options) error {
	if err := sandbox.Enter(o); err != nil {
		return err
	}
	tmp := filepath.Join(sandbox.WorkDir, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	return os.Setenv("TMPDIR", tmp)
}

var netnsCount atomic.Int64

// NetNS makes a network namespace that ends with the test. Its lo is up.
func NetNS(t testing.TB) *netns.NS {
	t.Helper()
	if !sandbox.Inside("test") {
		t.Fatal("testkit.NetNS needs the sandbox: give the package `func TestMain(m *testing.M) { testkit.Main(m) }`")
	}
	name := fmt.Sprintf("%s-%d", strings.Map(plain, t.Name()), netnsCount.Add(1))
	ns, err := netns.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// Do runs f in a namespace and ends the test where f fails.
func Do(t testing.TB, ns *netns.NS, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// Eventually asks cond again and again until it answers nil, and ends the test
// with its last answer where that does not come within the given time. Give it
// many times what an idle machine needs.
func Eventually(t testing.TB, within time.Duration, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	pause := time.Millisecond
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// NoLeftovers ends the test where what sandbox.Leftovers lists does not go
// away: call it when everything should have been cleaned up.
func NoLeftovers(t testing.TB) {
	t.Helper()
	Eventually(t, 30*time.Second, func() error {
		if left := sandbox.Leftovers(); len(left) > 0 {
			return fmt.Errorf("left over: %v", left)
		}
		return nil
	})
}
