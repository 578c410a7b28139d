package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// onSegment makes an agent take part in an election on lo.
func onSegment(a *Agent, members ...string) {
	a.Layer2.Interfaces, a.Layer2.Members = []string{"lo"}, members
}

func TestResolveLayer2(t *testing.T) {
	a := onLoopback(t)
	onSegment(&a, "10.0.0.1", "127.0.0.1")
	a.Layer2.PasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(a.Layer2.PasswordFile, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := a.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Layer2); got != "{127.0.0.1 [10.0.0.1 127.0.0.1] open sesame}" {
		t.Errorf("%s", got)
	}
}

func TestMistakesInLayer2AreNamed(t *testing.T) {
	for want, change := range map[string]func(*Agent){
		"--l2-interfaces: required by --l2-members and --l2-password-file": func(a *Agent) { a.Layer2.Members = []string{"10.0.0.1"} },
		"arrive on eth1: add it to --interface":                            func(a *Agent) { a.Layer2.Interfaces = []string{"eth1"} },
		"--l2-members: none is an address":                                 func(a *Agent) { onSegment(a, "10.0.0.1") },
		`--l2-members: "ten" is not an IP address`:                         func(a *Agent) { onSegment(a, "ten", "127.0.0.1") },
		"127.0.0.1 and fd00::1 are of different families":                  func(a *Agent) { onSegment(a, "fd00::1", "127.0.0.1") },
		"--l2-interfaces: interface lo has no address for":                 func(a *Agent) { onSegment(a) },
		"--l2-password-file: open /nonexistent":                            func(a *Agent) { onSegment(a, "127.0.0.1"); a.Layer2.PasswordFile = "/nonexistent" },
	} {
		a := onLoopback(t)
		change(&a)
		if _, err := a.Resolve(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
