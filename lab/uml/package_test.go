package uml

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestInOrder(t *testing.T) {
	const dep = `net/ip_vs_mh.ko: net/ip_vs.ko net/conntrack.ko lib/defrag.ko
net/ip_vs.ko: net/conntrack.ko lib/defrag.ko
net/conntrack.ko: lib/defrag.ko
lib/defrag.ko:
net/veth.ko.xz:
net/other.ko:
`
	got := inOrder(dep, []string{"ip_vs_mh", "built_in", "veth", "ip_vs"})
	want := []string{"lib/defrag.ko", "net/conntrack.ko", "net/ip_vs.ko", "net/ip_vs_mh.ko", "net/veth.ko.xz"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestShim sets a part of the FPU state, as user-mode Linux does: the kernel accepts it
// only with the shim.
func TestShim(t *testing.T) {
	dir := t.TempDir()
	shim, tracer := filepath.Join(dir, "shim.so"), filepath.Join(dir, "tracer")
	if err := buildShim(shim); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("cc", "-Wall", "-Wextra", "-Werror", "-o", tracer, "testdata/tracer.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if said, err := exec.Command(tracer).CombinedOutput(); err == nil {
		t.Skipf("this kernel accepts only part of it: %s", said)
	}
	cmd := exec.Command(tracer)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+shim)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with the shim: %v: %s", err, said)
	}
}
