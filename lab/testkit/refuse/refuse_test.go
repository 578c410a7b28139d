package refuse_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/refuse"

	"github.com/cilium/ebpf"
)

// parts are what this binary does under refuse, started as "exe part".
var parts = map[string]func() error{
	"try":    try,
	"make":   func() error { _ = newMap(ebpf.Hash, 4, 4, 1); return nil },
	"many":   many,
	"signal": waitForSignal,
	"file":   func() error { _, err := os.NewFile(3, "inherited").WriteString("hello"); return err },
	"leave":  leave,
	"stay":   stay,
	"nested": func() error {
		cmd := refuse.Command("map:hash=EPERM", "true")
		cmd.Stderr = os.Stderr
		return cmd.Run()
	},
	"exit":  func() error { os.Exit(7); return nil },
	"abort": func() error { return unix.Kill(os.Getpid(), unix.SIGKILL) },
}

func TestMain(m *testing.M) {
	refuse.Init()
	if len(os.Args) == 2 && parts[os.Args[1]] != nil {
		if err := parts[os.Args[1]](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

const self = "/proc/self/exe"

// outcomes returns the outcome of every attempt.
func outcomes(t *testing.T, cmd *exec.Cmd) map[string]string {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = result
	}
	if len(all) != len(attempts) {
		t.Fatalf("%d outcomes of %d attempts:\n%s", len(all), len(attempts), out)
	}
	return all
}

// TestRejects compares every attempt under each rule with the result without rules: only
// what the rule is about changes.
func TestRejects(t *testing.T) {
	const errno = "EBADE" // which nothing here returns otherwise
	plain := outcomes(t, exec.Command(self, "try"))
	for _, name := range []string{"map-ringbuf", "prog-xdp", "prog-ktime", "test-run", "link-xdp-generic", "nexthop-resilient", "qdisc-clsact", "qdisc-htb", "family-nlctrl"} {
		if plain[name] != "ok" {
			t.Errorf("%s: %s without any rule", name, plain[name])
		}
	}
	for rules, rejected := range map[string]string{
		"map:ringbuf":               "map-ringbuf map-library",
		"map:lru_hash":              "map-lruhash",
		"map:ringbuf map:hash":      "map-ringbuf map-library map-hash",
		"prog:xdp":                  "prog-xdp link-xdp link-xdp-generic link-xdp-native",
		"prog:tracing":              "prog-tracing",
		"prog:cgroupsockaddr":       "prog-peername prog-connect",
		"prog:schedcls":             "attach-tcx link-tcx",
		"attach:tcxegress":          "attach-tcx",
		"attach:tcxingress":         "link-tcx",
		"attach:xdp":                "link-xdp link-xdp-generic link-xdp-native",
		"attach:cgroupinetingress":  "",
		"helper:ktime_get_ns":       "prog-ktime",
		"helper:get_prandom_u32":    "prog-random",
		"kfunc:*":                   "prog-kfunc",
		"xdpmode:native":            "link-xdp link-xdp-native",
		"xdpmode:generic":           "link-xdp-generic",
		"cmd:prog_test_run":         "test-run",
		"cmd:link_create":           "link-tcx link-xdp link-xdp-generic link-xdp-native",
		"cmd:iter_create":           "iter-create",
		"cmd:btf_load":              "btf-load",
		"netlink:nexthop":           "nexthop nexthop-group nexthop-resilient",
		"netlink:nexthop-resilient": "nexthop-resilient",
		"netlink:qdisc-htb":         "qdisc-htb qdisc-change",
		"netlink:qdisc-clsact":      "qdisc-clsact",
		"netlink:inet-diag":         "inet-diag inet-diag-destroy",
		"netlink:inet-diag-destroy": "inet-diag-destroy",
		"netlink:netfilter":         "netfilter",
		"netlink:generic:ipvs":      "family-ipvs",
		"attach:cgroupinet4getpeername netlink:generic:nlctrl":                                    "prog-peername family-nlctrl",
		"attach:netkitpeer map:stack prog:lsm helper:sk_assign cmd:obj_pin netlink:generic:other": "",
	} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			want := maps.Clone(plain)
			for _, name := range strings.Fields(rejected) {
				if _, ok := want[name]; !ok {
					t.Fatalf("no attempt %s", name)
				}
				want[name] = errno
			}
			text := strings.Join(strings.Fields(rules), "="+errno+" ") + "=" + errno
			if d := cmp.Diff(want, outcomes(t, refuse.Command(text, self, "try"))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestFirstRuleDecides(t *testing.T) {
	got := outcomes(t, refuse.Command("map:ringbuf=ENOTSUPP map:ringbuf=EPERM cmd:map_create=EIO", self, "try"))
	for name, want := range map[string]string{"map-ringbuf": "", "map-hash": "EIO", "prog-xdp": "ok"} { // 524 has no name
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// many creates maps on many threads, which signals interrupt.
func many() error {
	var all sync.WaitGroup
	results := make(chan error, 800)
	for range 8 {
		all.Go(func() {
			for range 50 {
				results <- newMap(ebpf.RingBuf, 0, 0, 4096)
				results <- newMap(ebpf.Hash, 4, 4, 1)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for {
		select {
		case <-done:
			close(results)
			counts := map[string]int{}
			for err := range results {
				counts[outcome(err)]++
			}
			fmt.Println(counts)
			return nil
		case <-time.After(time.Millisecond):
			if err := unix.Kill(os.Getpid(), unix.SIGURG); err != nil {
				return err
			}
		}
	}
}

func TestManyThreads(t *testing.T) {
	out, err := refuse.Command("map:ringbuf=EPERM", self, "many").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "map[EPERM:400 ok:400]" {
		t.Errorf("%s (%v), want every second call to fail", got, err)
	}
}

// TestChildren rejects in a child of a child.
func TestChildren(t *testing.T) {
	got := outcomes(t, refuse.Command("map:ringbuf=EBADE", "sh", "-c", "/proc/"+strconv.Itoa(os.Getpid())+"/exe try; true"))
	if got["map-ringbuf"] != "EBADE" || got["map-hash"] != "ok" {
		t.Errorf("ringbuf %s, hash %s; want EBADE, ok", got["map-ringbuf"], got["map-hash"])
	}
}

func TestExitCode(t *testing.T) {
	script := t.TempDir() + "/script"
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rules   string
		command []string
		code    int
		stderr  string
	}{
		{"map:ringbuf=EPERM", []string{"true"}, 0, ""},
		{"map:ringbuf=EPERM", []string{self, "exit"}, 7, ""},
		{"map:ringbuf=EPERM", []string{self, "abort"}, 128 + 9, ""},
		{"map:ringbuf=EPERM", []string{"sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		{"map:ringbuf=EPERM", []string{"/nonexistent"}, 127, "no such file"},
		{"map:ringbuf=EPERM", []string{script}, 126, "permission denied"},
		{"map:ringbuff=EPERM", []string{"true"}, 125, `unknown map "ringbuff"`},
		{"-v cmd:map_create=EPERM", []string{"true"}, 0, "refuse: cmd:map_create=EPERM: rejected 0 calls"},
		{"-v cmd:map_create=EPERM", []string{self, "make"}, 0, "refuse: cmd:map_create=EPERM: system call"},
		{"-v cmd:map_create=EPERM", []string{self, "make"}, 0, "refuse: cmd:map_create=EPERM: rejected 1 calls"},
	} {
		cmd := refuse.Command(c.rules, c.command[0], c.command[1:]...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s %v: exit code %d, want %d; %.400s", c.rules, c.command, code, c.code, &stderr)
		}
	}
}

// TestNested checks for a clear message about what the kernel cannot do.
func TestNested(t *testing.T) {
	out, err := refuse.Command("map:ringbuf=EPERM", self, "nested").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "refuse cannot run inside refuse") {
		t.Errorf("%v: %s", err, out)
	}
}

func waitForSignal() error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals)
	fmt.Println(os.Getpid())
	for s := range signals {
		if s != unix.SIGURG { // Go's own
			fmt.Println(s)
			return nil
		}
	}
	return nil
}

// running starts waitForSignal, and returns its PID.
func running(t *testing.T) (*exec.Cmd, *bufio.Reader, int) {
	t.Helper()
	cmd := refuse.Command("map:ringbuf=EPERM", self, "signal")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, lines, pid
}

func TestForwardsSignals(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP} {
		cmd, lines, _ := running(t)
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); strings.TrimSpace(got) != s.String() {
			t.Errorf("%v arrives as %q (%v)", s, got, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

func TestDiesWithSupervisor(t *testing.T) {
	cmd, _, pid := running(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("process %d is still there: %v", pid, err)
		}
		return nil
	})
}

func TestFilesAreInherited(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := refuse.Command("map:ringbuf=EPERM", self, "file")
	cmd.ExtraFiles = []*os.File{w}
	out, err := cmd.CombinedOutput()
	w.Close()
	if got, _ := io.ReadAll(r); err != nil || string(got) != "hello" {
		t.Errorf("file 3 gets %q: %v: %s", got, err, out)
	}
}

// leave exits before its child, which has the files of both ends.
func leave() error {
	cmd := exec.Command(self, "stay")
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	return cmd.Start()
}

// stay creates a map when its input ends.
func stay() error {
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	fmt.Println(outcome(newMap(ebpf.RingBuf, 0, 0, 4096)), outcome(load(ebpf.SocketFilter, 0, exit)()))
	return nil
}

// TestEndsWithCommand checks what the package comment says about processes that the
// command leaves behind.
func TestEndsWithCommand(t *testing.T) {
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outR.Close()
	cmd := refuse.Command("map:ringbuf=EPERM", self, "leave")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, os.Stderr
	err = cmd.Run()
	inR.Close()
	outW.Close()
	inW.Close()
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := io.ReadAll(outR); strings.TrimSpace(string(out)) != "ENOSYS ok" {
		t.Errorf("afterwards: %q, want ENOSYS for maps and programs as before", out)
	}
}

// TestAttemptsAreDistinct keeps outcomes from hiding each other.
func TestAttemptsAreDistinct(t *testing.T) {
	var all []string
	for _, a := range attempts {
		all = append(all, a.name)
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("%d names of %d attempts: %q", n, len(all), all)
	}
}
