package config

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// onSegment makes an agent take turns on lo.
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
