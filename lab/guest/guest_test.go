package guest_test

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/lab/guest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestRun(t *testing.T) {
	var out, errs bytes.Buffer
	status, err := guest.Run(t.Context(), guest.Options{Stdout: &out, Stderr: &errs}, "/bin/sh", "-c", "uname -a; id; cat /proc/uptime; lsmod; mount; free -m; cat /proc/net/ip_vs; ip link; dmesg | tail -20; echo oops >&2; exit 3")
	t.Logf("%d %v\n%s---\n%s", status, err, &out, &errs)
}
