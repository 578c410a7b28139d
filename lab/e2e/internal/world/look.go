package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/paper"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Fairlead runs a command to its end, on a host or, if host is empty, outside all hosts,
// and returns its outputs and exit code.
func (w *World) Fairlead(t *testing.T, host string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(Binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if host == "" {
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	p, err := w.Lab.Host(host).Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(Within):
		p.Kill()
		<-p.Done()
		t.Errorf("fairlead %s in %s did not exit; output:\n%s", strings.Join(args, " "), host, errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Status queries an agent like a user: with fairlead status -o json.
func (w *World) Status(t *testing.T, agent string) (status.Status, error) {
	t.Helper()
	var s status.Status
	out, errs, code := w.Fairlead(t, "", "status", "-o", "json", "--socket", cluster.Socket(agent))
	if code != 0 {
		return s, fmt.Errorf("fairlead status exits with %d: %s", code, errs)
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// Eventually waits until want accepts an agent's status.
func (w *World) Eventually(t *testing.T, agent string, want func(status.Status) error) {
	t.Helper()
	testkit.Eventually(t, Within, func() error {
		s, err := w.Status(t, agent)
		if err != nil {
			return err
		}
		return want(s)
	})
}

// Look decodes the JSON output of a command.
func (w *World) Look(t *testing.T, into any, args ...string) {
	t.Helper()
	stdout, stderr, code := w.Fairlead(t, "", append(args, "-o", "json")...)
	if code != 0 {
		t.Fatalf("fairlead %v: %d: %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		t.Fatal(err)
	}
}

// InService waits until good accepts a backend's status on every load balancer, in each
// frontend of a Service; nil means that it is missing.
func (w *World) InService(t *testing.T, server paper.Pod, of Spec, good func(*status.Backend) bool) {
	t.Helper()
	for _, balancer := range w.Balancers(of.Of) {
		w.Eventually(t, balancer.Name, func(s status.Status) error {
			one, err := s.Only(of.Name)
			if err != nil {
				return err
			}
			for _, f := range one.Services[0].Frontends {
				var found *status.Backend
				for i, b := range f.Backends {
					if a := b.Address.Addr(); a == server.Addr || a == server.Addr6 {
						found = &f.Backends[i]
					}
				}
				if !good(found) {
					return fmt.Errorf("%s: %s has server %s as %+v", balancer.Name, f.Key(), server.Name, found)
				}
			}
			return nil
		})
	}
}

// Problem waits until an agent reports a problem with all of these words, or, without
// words, no problem.
func (w *World) Problem(t *testing.T, agent string, words ...string) {
	t.Helper()
	w.Eventually(t, agent, func(s status.Status) error {
		for _, p := range s.Problems {
			if len(words) > 0 && HasAll(p.String(), words) {
				return nil
			}
		}
		if len(words) == 0 && len(s.Problems) == 0 {
			return nil
		}
		return fmt.Errorf("problems are %q, want one with %q", s.Problems, words)
	})
}

// HasAll reports whether a text has all of these words.
func HasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// LastLine returns the last line of a command's output.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
