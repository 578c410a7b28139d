package sysctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestChange checks that changes are restored, including after a failure.
func TestChange(t *testing.T) {
	defer func(was string) { root = was }(root)
	root = t.TempDir()
	for path, value := range map[string]string{"a": "0\n", "b": "1\n"} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := []Setting{{Path: "a", Value: "1"}, {Path: "b", Value: "1"}, {Path: "ipv6/absent", Value: "1"}}
	restore, err := Change(all)
	if err != nil || Read("a") != "1" {
		t.Fatalf("a is %q, error %v", Read("a"), err)
	}
	if err := restore(); err != nil || Read("a")+Read("b") != "01" {
		t.Errorf("put back a %q, b %q, error %v", Read("a"), Read("b"), err)
	}
	if _, err := Change(append(all, Setting{Path: "absent", Value: "1"})); err == nil || Read("a") != "0" {
		t.Errorf("after a failure a is %q, error %v", Read("a"), err)
	}
}

func TestReadOnly(t *testing.T) {
	root := t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(root, "on"), []byte("1\n"), 0o600),
		os.WriteFile(filepath.Join(root, "off"), []byte("0\n"), 0o600),
		unix.Mount(root, root, "", unix.MS_BIND, ""),
		unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	if err := (Setting{Path: "on", Value: "1", Why: "it must"}).set(root); err != nil {
		t.Errorf("one that is right already: %v", err)
	}
	err = Setting{Path: "off", Value: "1", Why: "it must"}.set(root)
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "net.off is 0") || !strings.Contains(err.Error(), "because it must") {
		t.Errorf("one that is not: %v", err)
	}
	if err := (Setting{Path: "ipv6/conf/all/forwarding", Value: "1", Why: "it must"}).set(root); err != nil {
		t.Errorf("no IPv6: %v", err)
	}
	if err := (Setting{Path: "ipv4/conf/eth9/accept_local", Value: "1", Why: "it must"}).set(root); err == nil {
		t.Error("no such interface: no error")
	}
}
