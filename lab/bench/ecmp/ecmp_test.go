package ecmp_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/bench/benchtest"
	"github.com/fairlead/fairlead/lab/bench/ecmp"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestCases runs each case with small parameters. It does not check durations, but it
// checks what is lost or moved.
func TestCases(t *testing.T) {
	binary := benchtest.Build(t)
	t.Run("each", func(t *testing.T) {
		eachCase(t, binary)
		t.Run("bfd interrupted", func(t *testing.T) { interrupted(t, binary, "bfd", "--most", "2") })
		t.Run("convergence interrupted", func(t *testing.T) {
			interrupted(t, binary, "convergence", "--most", "2", "--every", "1s", "--router", "fairlead")
		})
	})
	testkit.NoLeftovers(t)
}

func eachCase(t *testing.T, binary string) {
	for name, c := range map[string]struct {
		args   []string
		rows   int
		charts []string
		// zero lists the prefix and suffix of rows that are 0 on any machine.
		zero [][2]string
	}{
		"convergence": {[]string{"--duration", "4s", "--every", "1s", "--most", "2"}, 6, []string{"Time until the router"}, nil},
		"failures":    {nil, 3, nil, nil},
		"holdtime":    {nil, 1, nil, nil},
		"neighbors":   {[]string{"--most", "2"}, 2, nil, nil},
		"throughput": {[]string{"--duration", "1s", "--every", "1s", "--most", "2"}, 6,
			[]string{"Throughput by the number", "Throughput while the number"}, nil},
		"bfd":        {[]string{"--duration", "2s", "--most", "2"}, 6, nil, nil},
		"nexthops":   {[]string{"--flows", "64"}, 3, nil, [][2]string{{"nexthops: fairlead", "of other next hops, moved"}}},
		"reflectors": {[]string{"--flows", "64", "--most", "2"}, 4, nil, [][2]string{{"reflectors: fairlead", "packets lost"}, {"reflectors: fairlead", "changes of the route"}}},
		"restarts":   {[]string{"--flows", "64", "--most", "2"}, 8, nil, [][2]string{{"restarts:", "packets lost"}}},
		"services":   {[]string{"--prefixes", "20"}, 6, nil, nil},
		"table":      {[]string{"--prefixes", "20", "--balancers", "3"}, 7, nil, nil},
		"zebra":      {nil, 0, nil, nil}, // one or two, depending on which gobgpd is there
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(benchtest.Ground, name)
			report := benchtest.Run(t, binary, out, append([]string{"ecmp"}, append(c.args, "--case", name, "--router", "fairlead", "--rounds", "1")...)...)
			if n := len(report.Rows); n == 0 || c.rows > 0 && n != c.rows {
				t.Errorf("%d rows, want %d: %+v", len(report.Rows), c.rows, report.Rows)
			}
			found := make([]bool, len(c.zero))
			for _, r := range report.Rows {
				if !strings.HasPrefix(r.Case, name+": ") || r.Runs == 0 || r.Measured < 0 {
					t.Errorf("row %+v", r)
				}
				for i, z := range c.zero {
					if !strings.HasPrefix(r.Case, z[0]) || !strings.HasSuffix(r.Case, z[1]) {
						continue
					}
					if found[i] = true; r.Measured != 0 || r.Met == nil || !*r.Met {
						t.Errorf("row %+v", r)
					}
				}
			}
			for i, z := range c.zero {
				if !found[i] {
					t.Errorf("no row %q … %q", z[0], z[1])
				}
			}
			page, err := os.ReadFile(filepath.Join(out, "ecmp.html"))
			for _, title := range c.charts {
				if err != nil || !bytes.Contains(page, []byte(title)) {
					t.Errorf("the page has no chart %q: %v", title, err)
				}
			}
		})
	}
}

// interrupted ends a long run early. Its figures must be saved, both before and at the
// interruption.
func interrupted(t *testing.T, binary string, name string, args ...string) {
	t.Parallel()
	out := filepath.Join(benchtest.Ground, name+"-interrupted")
	var stderr bytes.Buffer
	cmd := exec.Command(binary, append([]string{"bench", "ecmp", "--case", name, "--out", out, "--duration", "20h"}, args...)...)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(out, "ecmp.json")
	figures := func(what string) {
		t.Helper()
		if r, err := bench.ReadJSON(file); err != nil || !strings.HasPrefix(r.Rows[0].Case, name+": ") {
			t.Errorf("%s: %+v, %v: %s", what, r, err, stderr.String())
		}
	}
	testkit.Eventually(t, 2*time.Minute, func() error { _, err := os.Stat(file); return err })
	figures("during the run")
	if err := errors.Join(os.Remove(file), cmd.Process.Signal(unix.SIGINT)); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted run ends without an error")
	}
	figures("interrupted")
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	benchtest.Nonsense(t, ecmp.DefaultOptions, map[string]func(*ecmp.Options){
		"--case:":      func(o *ecmp.Options) { o.Cases = []string{"tables"} },
		"--router:":    func(o *ecmp.Options) { o.Routers = nil },
		"--duration:":  func(o *ecmp.Options) { o.Duration = time.Millisecond },
		"--every:":     func(o *ecmp.Options) { o.Every = 0 },
		"--most:":      func(o *ecmp.Options) { o.Most = 1 },
		"--flows:":     func(o *ecmp.Options) { o.Flows = 1 },
		"--rate:":      func(o *ecmp.Options) { o.Rate = 0 },
		"--prefixes:":  func(o *ecmp.Options) { o.Prefixes = 1 << 20 },
		"--balancers:": func(o *ecmp.Options) { o.Balancers = 1 },
		"--rounds:":    func(o *ecmp.Options) { o.Rounds = 0 },
	})
}
