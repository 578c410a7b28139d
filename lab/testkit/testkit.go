// Package testkit is shared by tests of code that uses the kernel: a sandbox around all
// tests of a package, network namespaces, waiting with a deadline. The product itself
// must not import it.
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

	"github.com/fairlead/fairlead/lab/budget"
	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// Main runs a package's tests inside a sandbox, so that even a killed test leaves nothing
// behind:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// The tests have their own, empty network namespace with lo up, a bpffs on /sys/fs/bpf,
// an empty /run, and TMPDIR within it. Flags, output, exit code and coverage are those of
// a plain `go test`.
//
// A fuzzer runs without a sandbox, which could not pass on its pipes.
func Main(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz=") || a == "-test.fuzzworker" }) {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := enter(sandbox.Options{Name: "test", Net: true, Outside: budget.Serve}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// enter enters a sandbox, and makes sure that temporary files are removed with it.
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

// NetNS creates a network namespace that ends with the test. Its lo is up.
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

// Do runs f in a namespace and fails the test if f fails.
func Do(t testing.TB, ns *netns.NS, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// Eventually calls cond repeatedly until it returns nil, and fails the test with its last
// error if that does not happen within the given time. Allow many times what an idle
// machine needs.
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

// NoLeftovers fails the test if anything that sandbox.Leftovers lists does not disappear:
// call it when everything should have been cleaned up.
func NoLeftovers(t testing.TB) {
	t.Helper()
	Eventually(t, 30*time.Second, func() error {
		if left := sandbox.Leftovers(); len(left) > 0 {
			return fmt.Errorf("left over: %v", left)
		}
		return nil
	})
}
