package sandbox_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
)

// helper is the environment variable that makes this test binary a program which enters
// its own sandbox, inside that of the tests.
const helper = "SANDBOX_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) != "" {
		os.Exit(runHelper(os.Getenv(helper)))
	}
	testkit.Main(m)
}

// runHelper is the program that the tests run in a sandbox.
func runHelper(what string) int {
	if what == "sleep" {
		select {}
	}
	answer := func(request string) string { return fmt.Sprintf("%s to %d", request, os.Getpid()) }
	if err := sandbox.Enter(sandbox.Options{Name: "helper", Net: true, Outside: answer}); err != nil {
		fmt.Println(err)
		return 99
	}
	switch what {
	case "look":
		return look()
	case "ask", "ask on":
		return ask(what == "ask on")
	case "stay":
		return stay()
	case "reap":
		return reap()
	case "echo":
		io.Copy(os.Stdout, os.Stdin)
		fmt.Fprintln(os.Stderr, os.Args[1:])
		return 7
	case "die":
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return 0
}

// look prints what must belong to a sandbox.
func look() int {
	netns, _ := os.ReadDir("/run/netns")
	pins, _ := filepath.Glob("/sys/fs/bpf/*[^g]") // the kernel itself may offer maps.debug, progs.debug
	devices, _ := os.ReadDir("/sys/class/net")
	fmt.Println(len(netns), len(pins), len(devices), devices[0].Name(), os.Getppid())
	return 0
}

// stay leaves things behind (a process whose parent is gone, in its own process group, a
// mount, a file), reports it, and waits.
func stay() int {
	unix.Mount("tmpfs", sandbox.WorkDir, "tmpfs", 0, "")
	os.WriteFile(filepath.Join(sandbox.WorkDir, "mess"), nil, 0o600)
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), helper+"=sleep")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return 0
}

// reap runs many children that leave orphans behind, and waits for each child like exec.
func reap() int {
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			out, err := exec.Command("/bin/sh", "-c", "(sleep 0.05; exit 3) & exit 0").CombinedOutput()
			if err != nil {
				fmt.Println("lost:", err, string(out))
			}
		})
	}
	wg.Wait()
	for range 200 {
		if zombies := count(os.Getpid(), func(stat string) bool { return strings.HasPrefix(stat, "Z") }); zombies == 0 {
			fmt.Println("clean")
			return 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println("zombies stay")
	return 1
}

// count counts processes other than self by /proc/PID/stat after the name.
func count(self int, match func(stat string) bool) int {
	n := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil || path == fmt.Sprintf("/proc/%d/stat", self) {
			continue
		}
		if _, rest, ok := strings.Cut(string(b), ") "); ok && match(rest) {
			n++
		}
	}
	return n
}

// ask prints the answer to a question, and that to one asked in a sandbox in this one.
func ask(inner bool) int {
	if inner {
		answer, err := sandbox.Ask("inner")
		fmt.Println(answer, err)
		return 0
	}
	answer, err := sandbox.Ask("outer")
	fmt.Println(answer, err)
	cmd := helperCommand("ask on")
	cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "FAIRLEAD_SANDBOX") })
	sandbox.PassOn(cmd)
	out, err := cmd.CombinedOutput()
	fmt.Print(string(out))
	if err != nil {
		fmt.Println(err)
	}
	return 0
}

func helperCommand(what string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helper+"="+what)
	// Like a shell's job; the tests signal the whole group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// TestAsk asks the outermost supervisor, through any number of sandboxes.
func TestAsk(t *testing.T) {
	cmd := helperCommand("ask")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if want := fmt.Sprintf("outer to %d <nil>\ninner to %[1]d <nil>\n", cmd.Process.Pid); err != nil || out.String() != want {
		t.Errorf("printed %q (%v), want %q", out.String(), err, want)
	}
}

func TestEnterGivesOwnFileSystems(t *testing.T) {
	out, err := helperCommand("look").CombinedOutput()
	if want := "0 0 1 lo 1\n"; err != nil || string(out) != want {
		t.Errorf("printed %q (%v), want %q", out, err, want)
	}
}

func TestEnterPassesThrough(t *testing.T) {
	cmd := helperCommand("echo", "-a", "b c")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("through"), &out, &errs
	err := cmd.Run()
	if out.String() != "through" || errs.String() != "[-a b c]\n" || exitCode(err) != 7 {
		t.Errorf("stdout %q, stderr %q, %v", out.String(), errs.String(), err)
	}
}

func TestEnterReportsKilledProgram(t *testing.T) {
	if err := helperCommand("die").Run(); exitCode(err) != 128+9 {
		t.Errorf("exit: %v, want %d", err, 128+9)
	}
}

func TestInitReapsOrphansOnly(t *testing.T) {
	if out, err := helperCommand("reap").CombinedOutput(); string(out) != "clean\n" {
		t.Errorf("printed %q (%v)", out, err)
	}
}

// A signal to the supervisor only, or to its whole process group as from a terminal, ends
// the program; so does the supervisor's own death.
func TestEndsWithoutTrace(t *testing.T) {
	for _, test := range []struct {
		name   string
		signal unix.Signal
		group  bool
	}{
		{"interrupt", unix.SIGINT, false},
		{"ctrl-C", unix.SIGINT, true},
		{"terminate", unix.SIGTERM, false},
		{"kill", unix.SIGKILL, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := helperCommand("stay")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("the helper prints %q (%v)", line, err)
			}
			if len(helpers()) != 4 {
				t.Errorf("processes are %v, want supervisor, init, program, child", helpers())
			}
			signalTo(cmd.Process.Pid, test.signal, test.group)
			cmd.Wait()
			noLeftovers(t)
		})
	}
}

// The same at any moment, from before the namespaces are created.
func TestEndsWithoutTraceAtAnyMoment(t *testing.T) {
	for i := range 24 {
		cmd := helperCommand("stay")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		sig := unix.SIGINT
		if i%3 == 0 {
			sig = unix.SIGKILL
		}
		signalTo(cmd.Process.Pid, sig, i%2 == 0)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			cmd.Process.Kill()
			t.Fatalf("%v after %d ms did not end it", sig, i*3)
		}
	}
	noLeftovers(t)
}

func signalTo(pid int, s unix.Signal, group bool) {
	if group {
		pid = -pid
	}
	unix.Kill(pid, s)
}

// noLeftovers waits for the last helper to end: its namespaces, and everything in them,
// end with it.
func noLeftovers(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		if left := helpers(); len(left) > 0 {
			return fmt.Errorf("%v are still there", left)
		}
		return nil
	})
}

// helpers are the processes that run this test binary as a helper.
func helpers() []string {
	var found []string
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(helper+"=")) {
			found = append(found, filepath.Dir(path))
		}
	}
	return found
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
