package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestReplace replaces a running program, and checks that the old one stays if the new
// one does not exist.
func TestReplace(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plugin := filepath.Join(dir, "fairlead-cni")
	if err := replace(sleep, plugin); err != nil {
		t.Fatal(err)
	}
	running := exec.Command(plugin, "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = running.Process.Kill()
		_ = running.Wait() // it was killed
	}()
	newer := filepath.Join(t.TempDir(), "newer")
	if err := os.WriteFile(newer, []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replace(newer, plugin); err != nil {
		t.Fatal(err)
	}
	if err := replace(filepath.Join(dir, "never"), plugin); err == nil {
		t.Error("a program that is not there replaces another")
	}
	text, err := os.ReadFile(plugin)
	info, errToo := os.Stat(plugin)
	if err != nil || errToo != nil || string(text) != "newer" || info.Mode() != 0o755 {
		t.Errorf("%q %v, %v %v", text, info, err, errToo)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q %v", left, err)
	}
}
