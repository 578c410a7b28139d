// Package promtool runs Prometheus's promtool, which tools/prometheus pins. Go builds it the
// first time, which takes minutes.
package promtool

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/internal/checkout"
)

// Build builds promtool and returns its path. Packages whose tests run without a network
// call it before.
var Build = sync.OnceValues(func() (string, error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "out/promtool")
	// Without service discovery, which no check here needs.
	cmd := exec.Command("go", "-C", filepath.Join(root, "tools/prometheus"), "build", "-tags=remove_all_sd", "-o", path,
		"github.com/prometheus/prometheus/cmd/promtool")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building promtool: %w: %s", err, out)
	}
	return path, nil
})

// Run runs promtool and returns its output.
func Run(t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	path, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// CheckMetrics fails unless what a process exports is valid and follows the conventions.
func CheckMetrics(t testing.TB, exported string) {
	t.Helper()
	if out, err := Run(t, exported, "check", "metrics"); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
