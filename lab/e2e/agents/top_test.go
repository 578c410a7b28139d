package agents_test

import (
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// terminal is a tmux session with a shell.
type terminal struct{ socket string }

func newTerminal(t *testing.T, width, height int, env ...string) terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	s := terminal{t.TempDir() + "/tmux"}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	for _, e := range append(env, "LC_ALL=C.UTF-8") {
		args = append(args, "-e", e)
	}
	s.tmux(t, append(args, "sh")...)
	t.Cleanup(func() { s.tmux(t, "kill-server") })
	return s
}

func (s terminal) tmux(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// press sends keys, as tmux names them.
func (s terminal) press(t *testing.T, keys ...string) {
	t.Helper()
	s.tmux(t, append([]string{"send-keys"}, keys...)...)
}

// shows waits until the screen matches every expression, and returns it.
func (s terminal) shows(t *testing.T, expressions ...string) (screen string) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		screen = s.tmux(t, "capture-pane", "-p")
		for _, e := range expressions {
			if !regexp.MustCompile("(?m)" + e).MatchString(screen) {
				return fmt.Errorf("no %s on\n%s", e, screen)
			}
		}
		return nil
	})
	return screen
}

// TestTop looks at a load balancer under traffic in a terminal: rates, a backend that fails
// its health check, peers and events. In the end the terminal is as before.
func TestTop(t *testing.T) {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 1), Nodes: 2}, 2)
	s := fixture.Spec{Name: "shop", Host: 1, Annotations: []string{
		"health-check: tcp", `health-check-port: "9000"`, "health-check-interval: 1s", "health-check-timeout: 1s"}}
	var health []io.Closer
	for _, pod := range w.Servers(web) {
		l, err := w.Lab.Host(pod.Name).Listen("tcp", ":9000")
		if err != nil {
			t.Fatal(err)
		}
		w.CloseLater(l)
		health = append(health, l)
	}
	w.HandIn(t, s)
	socket := cluster.Socket(w.NewBalancer(t, web).Name)
	w.Answers(t, s.HTTP())
	w.Load(t, "shop", s.HTTP(), 5, 20)
	rate := `[0-9.]+k?`
	term := newTerminal(t, 80, 24)
	term.press(t, "echo before; "+fixture.Binary+" top --interval 500ms --socket "+socket, "Enter")
	term.shows(t, `^fairlead top .* [1-9][0-9.]*k? packets/s .* [1-9][0-9.]*[kM]? bits/s`, `^> default/shop +active +[0-9]/[0-9] +`+rate+` `, `\[1 services\]`)
	health[0].Close()
	dead := w.Servers(web)[0].Addr.String()
	term.press(t, "Enter")
	term.shows(t, `services > default/shop`, `^> TCP `+s.HTTP().String()+` `)
	term.press(t, "Enter")
	term.shows(t, dead+`:[0-9]+ .* (down|removed) `)
	term.press(t, "s")
	term.shows(t, `^> `+dead)
	term.press(t, "Enter")
	term.shows(t, `health +(down|removed) for`, `last error +.*connection refused`, `BackendUnhealthy .*connection refused`)
	term.press(t, "Escape")
	term.shows(t, `^> `+dead+`.* (down|removed) `)
	term.press(t, "5")
	term.shows(t, `established`)
	term.tmux(t, "resize-window", "-x", "60", "-y", "15")
	term.press(t, "8")
	screen := term.shows(t, `BackendUnhealthy +Backend`)
	if n := strings.Count(strings.TrimRight(screen, "\n"), "\n") + 1; n > 15 {
		t.Errorf("%d lines after the terminal has become smaller:\n%s", n, screen)
	}
	term.press(t, "q")
	if screen := term.shows(t, `^([#$] )?before`, `^[#$] ?$`); strings.Contains(screen, "packets/s") {
		t.Errorf("the terminal is not restored:\n%s", screen)
	}
	if modes := term.tmux(t, "display-message", "-p", "#{alternate_on} #{cursor_flag}"); modes != "0 1\n" {
		t.Errorf("alternate screen and cursor are %q", modes)
	}
	topOnce(t, w, socket)
}

// topOnce prints tables, also on a terminal that cannot position the cursor.
func topOnce(t *testing.T, w *fixture.World, socket string) {
	t.Helper()
	out, errs, code := w.Fairlead(t, "", "top", "--once", "--interval", "500ms", "--socket", socket)
	if code != 0 || !regexp.MustCompile(`(?m)^default/shop +active +2/4 +[1-9]`).MatchString(out) || strings.Contains(out, "\x1b") {
		t.Errorf("%d %s:\n%s", code, errs, out)
	}
	term := newTerminal(t, 80, 24, "NO_COLOR=1")
	term.press(t, "TERM=dumb "+fixture.Binary+" top --interval 500ms --view node --socket "+socket, "Enter")
	term.shows(t, `(?s)packets/s.*packets/s`)
	term.press(t, "C-c")
	term.shows(t, `[#$] ?$`)
}
