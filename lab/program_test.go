package lab_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/sandbox"
	"github.com/fairlead/fairlead/lab/testkit"
)

// runHelper is a program like the demo: in its own sandbox it builds a lab with a process
// in it, waits for SIGINT, and cleans up.
func runHelper() int {
	if err := sandbox.Enter(sandbox.Options{Name: "lab-helper", Net: true}); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := lab.Build(ctx, smallNetwork())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := l.Host("pod").Start(exec.Command("/bin/sh", "-c", "sleep 3600 & sleep 3600; exit")); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	<-ctx.Done()
	if err := l.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	for range 500 {
		if len(sandbox.Leftovers()) == 0 {
			fmt.Println("clean")
			return 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println(sandbox.Leftovers())
	return 1
}

func TestProgramWithALabLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		signal unix.Signal
		group  bool
		says   string
	}{
		{unix.SIGINT, true, "clean\n"}, // Ctrl-C
		{unix.SIGINT, false, "clean\n"},
		{unix.SIGKILL, false, ""},
	} {
		t.Run(fmt.Sprint(test.signal, test.group), func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), helper+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "ready\n" {
				t.Fatalf("the program prints %q (%v)", line, err)
			}
			testkit.Eventually(t, long, func() error {
				if n := len(helpers()); n < 6 {
					return fmt.Errorf("%d processes, want supervisor, init, program, shell and two sleeps: %v", n, helpers())
				}
				return nil
			})
			pid := cmd.Process.Pid
			if test.group {
				pid = -pid
			}
			unix.Kill(pid, test.signal)
			if line, _ := lines.ReadString('\n'); line != test.says {
				t.Errorf("the program prints %q, want %q", line, test.says)
			}
			if err := cmd.Wait(); (err == nil) != (test.signal == unix.SIGINT) {
				t.Errorf("exit: %v", err)
			}
			testkit.Eventually(t, long, func() error {
				if left := helpers(); len(left) > 0 {
					return fmt.Errorf("still there: %v", left)
				}
				return nil
			})
		})
	}
}

// helpers are the processes of the helper and of what it starts.
func helpers() []string {
	var found []string
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(helper+"=")) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			found = append(found, filepath.Base(filepath.Dir(path))+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
