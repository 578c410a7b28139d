package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// GoFirst takes precedence over other sessions too, and leaves this one unchanged.
func TestGoFirst(t *testing.T) {
	l, err := lab.Build(t.Context(), smallNetwork())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := l.Host("pod").Start(exec.Command("sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	own := autogroup(t, os.Getpid())
	if err := p.GoFirst(); err != nil {
		t.Fatal(err)
	}
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, p.PID()); err != nil || 20-nice != lab.BeforeTheLoad {
		t.Errorf("its nice value is %d, %v", 20-nice, err)
	}
	if got, want := autogroup(t, p.PID()), fmt.Sprintf("nice %d", lab.BeforeTheLoad); !strings.HasSuffix(got, want) {
		if _, err := os.Stat("/proc/self/autogroup"); err == nil {
			t.Errorf("its session is %q, want %s", got, want)
		}
	}
	if got := autogroup(t, os.Getpid()); got != own {
		t.Errorf("this session was %q and is %q", own, got)
	}
}

func autogroup(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
